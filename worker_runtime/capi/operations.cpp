#include "muster/operation.h"

#include <cstdint>
#include <vector>

#include "muster/muster_group.h"
#include "muster/muster_moves.h"
#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

namespace {

/// What every function below was given, but for the memory.
struct Call {
    const char* function;
    muster_communicator* communicator;
    size_t count;
    int type;
    int64_t timeout_ms;
    muster_work** work;
};

Result<void> perform(const Call& call, Communicator& communicator, const Operation& operation) {
    const auto timeout = MUSTER_TRY(read_timeout(call.timeout_ms, Duration::zero()));
    const bool has_own = timeout != Duration::zero();
    if (call.work == nullptr) return has_own ? communicator.run(operation, timeout) : communicator.run(operation);
    auto started = has_own ? communicator.start(operation, timeout) : communicator.start(operation);
    *call.work = works.add(std::make_shared<Work>(std::move(started)));
    return {};
}

thread_local std::uint32_t collectives_tag = 0;

/// The caller's memory, as a buffer of the given count, or of that count for every rank.
struct Buffers {
    size_t count;
    DataType type;
    int world;

    [[nodiscard]] Buffer one(void* data) const { return {data, count, type}; }
    [[nodiscard]] ConstBuffer one(const void* data) const { return {data, count, type}; }
    [[nodiscard]] Buffer all(void* data) const { return {data, count * static_cast<size_t>(world), type}; }
    [[nodiscard]] ConstBuffer all(const void* data) const { return {data, count * static_cast<size_t>(world), type}; }
};

/// `make` returns the operation on the caller's memory, or an error.
muster_status operate(const Call& call, auto&& make) {
    return guarded(call.function, [&]() -> Result<void> {
        if (call.work != nullptr) *call.work = nullptr;
        const auto found = MUSTER_TRY(communicators.find(call.communicator));
        const auto type = MUSTER_TRY(read_type(call.type));
        auto& communicator = found->get();
        MUSTER_TRY(check_count(call.count, type, communicator.size()));
        Result<Operation> operation = make(Buffers{call.count, type, communicator.size()});
        if (operation && !is_paired(operation->kind)) operation->tag = collectives_tag;
        return operation ? perform(call, communicator, *operation) : operation.error();
    });
}

Operation tagged(Operation operation, std::uint32_t tag) {
    operation.tag = tag;
    return operation;
}

std::vector<Part> read_parts(const size_t* counts, const size_t* offsets, size_t ranks) {
    auto parts = parts_in_a_row({counts, ranks});
    for (size_t rank = 0; offsets != nullptr && rank < ranks; ++rank) parts[rank].offset = offsets[rank];
    return parts;
}

}  // namespace

extern "C" {

void muster_tag_collectives(uint32_t tag) {
    collectives_tag = tag;
}

muster_status muster_barrier(muster_communicator* communicator, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, 0, MUSTER_U8, timeout_ms, work}, [](const Buffers&) { return barrier(); });
}

muster_status muster_all_reduce(muster_communicator* communicator, void* data, size_t count, int type, int reduce,
                                int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) -> Result<Operation> {
                       return all_reduce(of.one(data), MUSTER_TRY(read_reduce(reduce)));
                   });
}

muster_status muster_all_reduce_weighted(muster_communicator* communicator, void* data, size_t count, int type,
                                         float weight, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return all_reduce_weighted(of.one(data), weight); });
}

muster_status muster_all_reduce_premul(muster_communicator* communicator, void* data, size_t count, int type,
                                       double factor, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return all_reduce_premul(of.one(data), factor); });
}

muster_status muster_reduce_scatter(muster_communicator* communicator, const void* input, void* output, size_t count,
                                    int type, int reduce, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) -> Result<Operation> {
                       return reduce_scatter(of.all(input), of.one(output), MUSTER_TRY(read_reduce(reduce)));
                   });
}

muster_status muster_reduce_scatter_premul(muster_communicator* communicator, const void* input, void* output,
                                           size_t count, int type, double factor, int64_t timeout_ms,
                                           muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return reduce_scatter_premul(of.all(input), of.one(output), factor); });
}

muster_status muster_all_gather(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return all_gather(of.one(input), of.all(output)); });
}

muster_status muster_broadcast(muster_communicator* communicator, void* data, size_t count, int type, int root,
                               int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return broadcast(of.one(data), root); });
}

muster_status muster_all_to_all(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return all_to_all(of.all(input), of.all(output), of.world); });
}

muster_status muster_gather(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                            int root, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return gather(of.one(input), of.all(output), root); });
}

muster_status muster_scatter(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                             int root, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return scatter(of.all(input), of.one(output), root); });
}

muster_status muster_reduce(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                            int reduction, int root, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) -> Result<Operation> {
                       return reduce(of.one(input), of.one(output), MUSTER_TRY(read_reduce(reduction)), root);
                   });
}

muster_status muster_reduce_premul(muster_communicator* communicator, const void* input, void* output, size_t count,
                                   int type, double factor, int root, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return reduce_premul(of.one(input), of.one(output), factor, root); });
}

muster_status muster_all_to_all_uneven(muster_communicator* communicator, const void* input, void* output, int type,
                                       const muster_parts* parts, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, 0, type, timeout_ms, work}, [&](const Buffers& of) -> Result<Operation> {
        if (parts == nullptr) return invalid("`parts` is NULL");
        const auto given = MUSTER_TRY(read(parts));
        if (given.sent_counts == nullptr || given.expected_counts == nullptr)
            return invalid("`sent_counts` or `expected_counts` is NULL; both have one count per rank");
        const auto ranks = static_cast<size_t>(of.world);
        return all_to_all_uneven(input, output, of.type,
                                 {read_parts(given.sent_counts, given.sent_offsets, ranks),
                                  read_parts(given.expected_counts, given.expected_offsets, ranks)});
    });
}

muster_status muster_send(muster_communicator* communicator, const void* data, size_t count, int type, int peer,
                          int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return send(of.one(data), peer); });
}

muster_status muster_receive(muster_communicator* communicator, void* data, size_t count, int type, int peer,
                             int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return receive(of.one(data), peer); });
}

muster_status muster_send_tagged(muster_communicator* communicator, const void* data, size_t count, int type, int peer,
                                 uint32_t tag, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return tagged(send(of.one(data), peer), tag); });
}

muster_status muster_receive_tagged(muster_communicator* communicator, void* data, size_t count, int type, int peer,
                                    uint32_t tag, int64_t timeout_ms, muster_work** work) {
    return operate({__func__, communicator, count, type, timeout_ms, work},
                   [&](const Buffers& of) { return tagged(receive(of.one(data), peer), tag); });
}

muster_status muster_receive_any(muster_communicator* communicator, void* data, size_t count, int type, uint32_t tag,
                                 int64_t timeout_ms, int* peer) {
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        if (peer == nullptr) return invalid("`peer` is NULL");
        const auto known = MUSTER_TRY(read_type(type));
        auto& group = found.get();
        MUSTER_TRY(check_count(count, known, group.size()));
        if (group.transport() == "nccl") return Error{Errc::unsupported, "NCCL cannot receive from any rank"};
        const auto timeout = MUSTER_TRY(read_timeout(timeout_ms, group.timeout()));
        const auto received = MUSTER_TRY(group.receive_any({data, count, known}, tag, timeout));
        *peer = received;
        return {};
    });
}

muster_status muster_work_wait(muster_work* work) {
    return with(__func__, works, work, [](auto& found) { return found.wait(); });
}

muster_status muster_work_done(muster_work* work, int* done) {
    return with(__func__, works, work, [&](auto& found) { return give(done, "done", found.done()); });
}

muster_status muster_work_took(muster_work* work, int64_t* nanoseconds) {
    return with(__func__, works, work, [&](auto& found) {
        return give(nanoseconds, "nanoseconds", std::chrono::nanoseconds(found.took()).count());
    });
}

muster_status muster_work_release(muster_work* work) {
    return guarded(__func__, [&] { return works.release(work); });
}
}
