// Sends and receives: a communicator of two ranks for each direction of each pair.
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/nccl_comm.h"
#include "worker_runtime/nccl/nccl_operation.h"
#include "worker_runtime/nccl/nccl_transport.h"
#include "worker_runtime/nccl/unique_id.h"

namespace muster::runtime {

Result<NcclTransport::Channel*> NcclTransport::channel(int from, int to, const NcclWait& wait) {
    {
        const std::lock_guard lock(channels_mutex_);
        if (const auto found = channels_.find({from, to}); found != channels_.end()) return &found->second;
    }
    MUSTER_CHECK(group_.place != nullptr, "a world of one has no peer");
    const auto& nccl = process_->nccl();
    const std::string key = cat(group_.id, "/nccl/pair/", from, "-", to);
    ncclUniqueId id{};
    if (group_.rank == from) {
        const auto used = MUSTER_TRY(process_->use_device());
        MUSTER_TRY(nccl.check(nccl.unique_id(&id), "ncclGetUniqueId", nullptr));
        MUSTER_TRY(group_.place->publish(key, text_of(id, group_.security, key), wait.terms.deadline));
    } else {
        // With a parent it asks again and again: the store's connection serves others between, and a failure ends it.
        const auto itself = std::make_shared<ParentGroup>(
            [this, began = std::chrono::steady_clock::now()] { return check_alive(began); }, group_.size);
        auto found = group_.place->collect({key}, {wait.terms.deadline, itself});
        if (!found) return found.error().code == Errc::timed_out ? wait.late() : found.error();
        id = MUSTER_TRY(id_of(found->front(), group_.security, key));
    }
    auto made = NcclComm::make(
        process_, cat(board_->here(), ": ncclCommInitRank of a pair"),
        [&](ncclComm_t* handle, ncclConfig_t* config) {
            return nccl.init(handle, 2, id, group_.rank == from ? 0 : 1, config);
        },
        wait);
    if (!made) return made.error();
    const std::lock_guard lock(channels_mutex_);
    auto& channel = channels_[{from, to}];
    channel = {.communicator = std::move(*made), .staging = std::make_unique<Staging>(process_)};
    return &channel;
}

Result<void> NcclTransport::transfer(const Operation& operation, const RunTerms& terms) {
    const bool sends = operation.kind == OperationKind::send;
    NcclWait wait = wait_for(describe(operation), terms);
    wait.late = [this, &operation, sends] {
        return Error{Errc::timed_out, cat(board_->here(), ": ", describe(operation), " did not end in time: ",
                                          board_->who(operation.peer), sends ? " does not receive" : " does not send")};
    };
    auto place = sends ? channel(group_.rank, operation.peer, wait) : channel(operation.peer, group_.rank, wait);
    if (!place) return end(place.error());
    NcclComm& pair = *(*place)->communicator;
    Staging& staging = *(*place)->staging;
    const auto carry = [&]() -> Result<void> {
        if (operation.after != nullptr) {
            if (auto waits = pair.stream().wait_for(operation.after); !waits) return waits;
        }
        const NcclPlace here{.rank = sends ? 0 : 1, .size = 2};
        auto staged = MUSTER_TRY(staging.bring(operation, here, pair.stream()));
        staged.peer = 1 - here.rank;
        const std::string what = cat(board_->here(), ": ", describe(operation));
        auto done = pair.run(
            what,
            [&](ncclComm_t handle, cudaStream_t stream) {
                return enqueue(process_->nccl(), staged, ncclSum, here, handle, stream);
            },
            wait);
        if (!done || staged.output == operation.output) return done;
        MUSTER_TRY(staging.take_back(operation, staged, here, pair.stream()));
        return pair.finish(what, wait);
    };
    if (auto done = carry(); !done) return end(done.error());
    return {};
}

}  // namespace muster::runtime
