#include "muster/communicator.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_communicator_rank(muster_communicator* communicator, int* rank) {
    return with(__func__, communicators, communicator,
                [&](auto& found) { return give(rank, "rank", found.get().rank()); });
}

muster_status muster_communicator_size(muster_communicator* communicator, int* size) {
    return with(__func__, communicators, communicator,
                [&](auto& found) { return give(size, "size", found.get().size()); });
}

muster_status muster_communicator_transport(muster_communicator* communicator, char* text, size_t capacity,
                                            size_t* needed) {
    return with(__func__, communicators, communicator,
                [&](auto& found) { return write_text(found.get().transport(), text, capacity, needed); });
}

muster_status muster_communicator_split(muster_communicator* communicator, int color, int key,
                                        muster_communicator** group) {
    if (group != nullptr) *group = nullptr;  // also where the communicator is none: callers release it after a failure
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        MUSTER_TRY(give(group, "group", nullptr));
        auto made = MUSTER_TRY(found.get().split(color, key));
        if (made == nullptr) return {};
        *group = communicators.add(std::make_shared<CommunicatorObject>(found.context, std::move(made)));
        return {};
    });
}

muster_status muster_communicator_status(muster_communicator* communicator) {
    return with(__func__, communicators, communicator, [](auto& found) { return found.get().status(); });
}

muster_status muster_communicator_abort(muster_communicator* communicator, const char* why) {
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        found.get().abort(why != nullptr ? why : "no reason was given");
        return {};
    });
}

muster_status muster_communicator_release(muster_communicator* communicator) {
    return guarded(__func__, [&] { return communicators.release(communicator); });
}

muster_status muster_allocate(muster_communicator* communicator, size_t size_bytes, muster_memory** memory) {
    if (memory != nullptr) *memory = nullptr;
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        MUSTER_TRY(give(memory, "memory", nullptr));
        *memory = memories.add(std::make_shared<Memory>(MUSTER_TRY(found.get().allocate(size_bytes))));
        return {};
    });
}

muster_status muster_memory_data(muster_memory* memory, void** data, size_t* size_bytes) {
    return with(__func__, memories, memory, [&](Memory& found) -> Result<void> {
        if (data != nullptr) *data = found.data();
        if (size_bytes != nullptr) *size_bytes = found.size_bytes();
        return {};
    });
}

muster_status muster_memory_release(muster_memory* memory) {
    return guarded(__func__, [&] { return memories.release(memory); });
}
}
