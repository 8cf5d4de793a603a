#include "muster/communicator.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_communicator_rank(muster_communicator* communicator, int* rank) {
    return guarded("muster_communicator_rank", [&]() -> Result<void> {
        if (rank == nullptr) return invalid("`rank` is NULL");
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        *rank = (*found)->get().rank();
        return {};
    });
}

muster_status muster_communicator_size(muster_communicator* communicator, int* size) {
    return guarded("muster_communicator_size", [&]() -> Result<void> {
        if (size == nullptr) return invalid("`size` is NULL");
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        *size = (*found)->get().size();
        return {};
    });
}

muster_status muster_communicator_transport(muster_communicator* communicator, char* text, size_t capacity,
                                            size_t* needed) {
    return guarded("muster_communicator_transport", [&]() -> Result<void> {
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        return write_text((*found)->get().transport(), text, capacity, needed);
    });
}

muster_status muster_communicator_split(muster_communicator* communicator, int color, int key,
                                        muster_communicator** group) {
    return guarded("muster_communicator_split", [&]() -> Result<void> {
        if (group == nullptr) return invalid("`group` is NULL");
        *group = nullptr;
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        auto made = (*found)->get().split(color, key);
        if (!made) return made.error();
        if (*made == nullptr) return {};
        *group = communicators().add(std::make_shared<CommunicatorObject>((*found)->context, std::move(*made)));
        return {};
    });
}

muster_status muster_communicator_status(muster_communicator* communicator) {
    return guarded("muster_communicator_status", [&]() -> Result<void> {
        const auto found = communicators().find(communicator);
        return found ? (*found)->get().status() : found.error();
    });
}

muster_status muster_communicator_abort(muster_communicator* communicator, const char* why) {
    return guarded("muster_communicator_abort", [&]() -> Result<void> {
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        (*found)->get().abort(why != nullptr ? why : "no reason was given");
        return {};
    });
}

muster_status muster_communicator_release(muster_communicator* communicator) {
    return guarded("muster_communicator_release", [&] { return communicators().release(communicator); });
}

muster_status muster_allocate(muster_communicator* communicator, size_t size_bytes, muster_memory** memory) {
    return guarded("muster_allocate", [&]() -> Result<void> {
        if (memory == nullptr) return invalid("`memory` is NULL");
        *memory = nullptr;
        const auto found = communicators().find(communicator);
        if (!found) return found.error();
        auto taken = (*found)->get().allocate(size_bytes);
        if (!taken) return taken.error();
        *memory = memories().add(std::make_shared<Memory>(std::move(*taken)));
        return {};
    });
}

muster_status muster_memory_data(muster_memory* memory, void** data, size_t* size_bytes) {
    return guarded("muster_memory_data", [&]() -> Result<void> {
        const auto found = memories().find(memory);
        if (!found) return found.error();
        if (data != nullptr) *data = (*found)->data();
        if (size_bytes != nullptr) *size_bytes = (*found)->size_bytes();
        return {};
    });
}

muster_status muster_memory_release(muster_memory* memory) {
    return guarded("muster_memory_release", [&] { return memories().release(memory); });
}
}
