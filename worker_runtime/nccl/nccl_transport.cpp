#include "worker_runtime/nccl/nccl_transport.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/nccl_comm.h"
#include "worker_runtime/nccl/nccl_operation.h"
#include "worker_runtime/nccl/own_rank.h"
#include "worker_runtime/nccl/unique_id.h"

namespace muster::runtime {

NcclTransport::NcclTransport(GroupTerms group, std::shared_ptr<NcclProcess> process,
                             std::shared_ptr<NcclStatusBoard> news)
    : group_(std::move(group)), process_(std::move(process)), board_(std::move(news)) {
    failure_listener_ =
        process_->add_failure_listener([told = board_](const std::string& why) { told->publish_failure(why); });
}

Result<std::unique_ptr<Transport>> NcclTransport::make(const GroupTerms& group, const NcclTerms& terms) {
    auto process = NcclProcess::open(terms);
    auto ranks = MUSTER_TRY(meet_ranks(group, process));
    if (auto good = check_ranks(ranks, ::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr); !good) {
        return with_context(good.error(), cat("communicator ", group.id));
    }
    if (!group.is_part()) {
        const auto described = (*process)->description();
        group.rank == 0 ? terms.notice(described) : terms.log(LogLevel::info, described);
    }
    auto news = MUSTER_TRY(NcclStatusBoard::start(group, std::move(ranks)));
    std::unique_ptr<NcclTransport> transport(new NcclTransport(group, std::move(*process), std::move(news)));
    MUSTER_TRY(transport->connect());
    return std::unique_ptr<Transport>(std::move(transport));
}

NcclTransport::~NcclTransport() {
    order_watch_.reset();
    for (const auto& peer : watched_) process_->watch().remove(peer->number);
    if (process_->failed()) {
        process_->wait_over();
    } else {
        board_->publish_left();
        for (auto& [pair, channel] : channels_) channel.communicator->close();
        if (communicator_) communicator_->close();
    }
    process_->remove_failure_listener(failure_listener_);
    if (scratch_ != nullptr) process_->free(scratch_, MemoryUse::staging);
}

Result<std::vector<ncclUniqueId>> NcclTransport::meet_at_roots(const NcclRoots& roots) {
    const auto wait = group_.meeting_wait();
    std::vector<std::string> texts(1);
    const auto keys = nccl_root_keys(group_.id, roots);
    if (const int root = roots.held_by(group_.rank); root >= 0) {
        ncclUniqueId id{};
        const auto& nccl = process_->nccl();
        const auto used = MUSTER_TRY(process_->use_device());
        MUSTER_TRY(nccl.check(nccl.unique_id(&id), "ncclGetUniqueId", nullptr));
        const auto& key = keys[static_cast<std::size_t>(root)];
        texts.front() = text_of(id, group_.security, key);
        if (group_.place) MUSTER_TRY(group_.place->publish(key, texts.front(), wait.deadline));
    }
    if (group_.place) {
        auto found = group_.place->collect(keys, wait);
        if (!found) return with_context(found.error(), "the unique ids of NCCL");
        texts = std::move(*found);
    }
    std::vector<ncclUniqueId> ids;
    for (std::size_t root = 0; root < texts.size(); ++root) {
        ids.push_back(MUSTER_TRY(id_of(texts[root], group_.security, keys[root])));
    }
    return ids;
}

Result<void> NcclTransport::connect() {
    const auto& nccl = process_->nccl();
    // Older libraries support one root only, for any world; it only takes longer.
    const auto roots = nccl.features.several_roots ? NcclRoots::for_world(group_.size, process_->terms().ranks_per_root)
                                                   : NcclRoots{.size = group_.size, .count = 1};
    auto ids = meet_at_roots(roots);
    if (!ids) return with_context(ids.error(), board_->here());
    MUSTER_TRY(watch_peers());
    const auto init = [&](ncclComm_t* communicator, ncclConfig_t* config) {
        if (roots.count == 1) return nccl.init(communicator, group_.size, ids->front(), group_.rank, config);
        return nccl.init_scalable(communicator, group_.size, group_.rank, roots.count, ids->data(), config);
    };
    const RunTerms terms{.deadline = std::chrono::steady_clock::now() + group_.meeting_timeout,
                         .patience = WaitMode::frugal};
    NcclWait wait = wait_for("connecting the ranks", terms);
    wait.check_alive = [meeting = group_.meeting_wait(), news = std::move(wait.check_alive)] {
        auto stands = meeting.check_alive();
        return stands ? news() : stands;
    };
    auto made = MUSTER_TRY(NcclComm::make(process_, cat(board_->here(), ": ncclCommInitRank"), init, wait));
    // The other ranks are connected now, so they must be informed of a failure.
    if (auto ready = set_up(std::move(made)); !ready) return end(ready.error());
    return {};
}

Result<void> NcclTransport::set_up(std::shared_ptr<NcclComm> communicator) {
    communicator_ = std::move(communicator);
    staging_ = std::make_unique<Staging>(process_);
    scratch_ = MUSTER_TRY(process_->allocate(1, MemoryUse::staging));
    queue_ = MUSTER_TRY(NcclQueue::make(process_));
    if (group_.place && group_.size > 1) {
        order_watch_ = MUSTER_TRY(
            OrderWatch::start(board_, std::max<Duration>(process_->terms().compare_interval, group_.size * 2ms),
                              [this](const Error& error) { process_->fail(error); }));
    }
    return communicator_->stream().fill_zero(scratch_, 1);
}

Result<void> NcclTransport::watch_peers() {
    const auto& ranks = board_->ranks();
    for (int rank = 0; rank < group_.size; ++rank) {
        const auto& peer = ranks[static_cast<std::size_t>(rank)];
        if (rank == group_.rank || !sees_process(ranks[static_cast<std::size_t>(group_.rank)], peer)) continue;
        auto watch = std::make_unique<PeerWatch>();
        watch->process = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
        // Without pidfds (an old kernel, a strict sandbox), only the agent and the deadlines detect the end of a peer.
        if (!watch->process.valid()) continue;
        watch->number = MUSTER_TRY(process_->watch().add(
            watch->process, [rank, news = board_, process = std::weak_ptr<NcclProcess>(process_)] {
                const auto owner = process.lock();
                if (!owner || owner->failed()) return false;
                const auto end = news->explain_end(rank);
                if (end) owner->fail({Errc::peer_closed, cat(news->here(), ": ", *end)});
                return false;
            }));
        watched_.push_back(std::move(watch));
    }
    return {};
}

NcclWait NcclTransport::wait_for(const std::string& what, const RunTerms& terms) {
    const Instant began = std::chrono::steady_clock::now();
    return {.terms = terms,
            .check_alive = [this, began] { return board_->check_alive(began); },
            .late = [this, what, allowed = terms.deadline - began] { return late(what, allowed); },
            .cause_of = [this](const Error& reported) { return board_->cause_of(reported); }};
}

Error NcclTransport::late(const std::string& what, Duration allowed) {
    return {Errc::timed_out,
            cat(board_->here(), ": ", what, " did not end within ",
                describe(std::chrono::round<std::chrono::milliseconds>(allowed)), ": ", board_->explain_missing())};
}

Error NcclTransport::end(const Error& error) {
    const Error first = process_->fail(process_->failed() ? error : board_->cause_of(error));
    process_->wait_over();
    return first;
}

Result<void> NcclTransport::check(const Operation& operation) const {
    if (!reduces(operation.kind)) return {};
    if (is_bitwise(operation.reduce))
        return Error{Errc::unsupported, cat(describe(operation),
                                            ": NCCL has no bitwise operations; reduce the elements "
                                            "in host memory, with a communicator over another "
                                            "transport")};
    if (operation.type == DataType::u16 || operation.type == DataType::i16)
        return Error{Errc::unsupported,
                     cat(describe(operation), ": NCCL only moves 16-bit integers; convert the elements to i32")};
    return {};
}

Result<void> NcclTransport::run(const Operation& operation, const RunTerms& terms) {
    Operation asked = operation;
    // NCCL drops calls without elements, but all ranks must still take part.
    if (asked.count == 0 && !asked.parts) asked = barrier();
    const auto number = board_->begin(signature_of(asked));
    const auto wait = wait_for(cat(describe(asked), " (operation ", number, ")"), terms);
    if (asked.parts) {
        const auto table = exchange_parts(asked, wait);
        if (!table) return end(table.error());
        if (const int rank = table->damaged(); rank >= 0)
            return end({Errc::bad_frame, cat(board_->who(rank), " sent ", PartsTable::damage)});
        if (auto text = table->contradiction([this](int rank) { return board_->who(rank); }); !text.empty())
            return contradiction_error(std::move(text));
    }
    std::vector<float> weights;
    if (asked.reduce == ReduceOp::avg && asked.weighted && asked.weights == nullptr) {
        auto known = exchange_weights(asked, wait);
        if (!known) return end(known.error());
        weights = std::move(*known);
        asked.weights = weights.data();
    }
    auto done = carry_out(asked, wait);
    if (!done) return end(done.error());
    return done;
}

/// Before the operation's own memory is staged: both would lie in the same place.
Result<std::vector<float>> NcclTransport::exchange_weights(const Operation& operation, const NcclWait& wait) {
    const auto own = static_cast<float>(operation.weight);
    std::vector<float> weights(static_cast<std::size_t>(group_.size));
    const Operation gather = all_gather({&own, 1, DataType::f32}, buffer(std::span(weights)));
    MUSTER_TRY(carry_out(gather, wait));
    return weights;
}

Result<PartsTable> NcclTransport::exchange_parts(const Operation& operation, const NcclWait& wait) {
    PartsTable table(operation, group_.rank, group_.size);
    MUSTER_TRY(carry_out(table.exchange(), wait));
    return table;
}

Result<void> NcclTransport::carry_out(const Operation& operation, const NcclWait& wait) {
    const std::string what = cat(board_->here(), ": ", describe(operation));
    if (operation.after != nullptr) {
        if (auto waits = communicator_->stream().wait_for(operation.after); !waits) return waits;
    }
    auto staged = MUSTER_TRY(staging_->bring(operation, here(), communicator_->stream()));
    if (operation.kind == OperationKind::barrier) staged.output = scratch_;
    auto done = put(staged, what, wait);
    if (done) done = communicator_->finish(what, wait);
    if (!done || staged.output == operation.output || operation.kind == OperationKind::barrier) return done;
    // Copied back after the operation: a copy to unpinned host memory blocks the thread until all earlier work is done.
    MUSTER_TRY(staging_->take_back(operation, staged, here(), communicator_->stream()));
    return communicator_->finish(what, wait);
}

Result<void> NcclTransport::put(const Operation& operation, const std::string& what, const NcclWait& wait) {
    const auto* const steps = operation.steps;
    Result<void> done;
    if (steps != nullptr) done = steps->before(communicator_->stream());
    if (done) done = put_alone(operation, what, wait);
    if (done && steps != nullptr) done = steps->behind(communicator_->stream());
    return done;
}

Result<void> NcclTransport::put_alone(const Operation& operation, const std::string& what, const NcclWait& wait) {
    const auto& nccl = process_->nccl();
    ncclRedOp_t reduction = nccl_reduction(operation.reduce);
    if (multiplies(operation.reduce) && operation.weighted) {
        reduction = MUSTER_TRY(weighted_reduction(operation, wait));
    }
    auto done = communicator_->call(
        what,
        [&](ncclComm_t handle, cudaStream_t stream) {
            return enqueue(nccl, operation, reduction, here(), handle, stream);
        },
        wait);
    if (!done || reduction < ncclNumOps) return done;
    return communicator_->call(
        what, [&](ncclComm_t handle, cudaStream_t) { return nccl.forget_reduction(reduction, handle); }, wait);
}

Result<ncclRedOp_t> NcclTransport::weighted_reduction(const Operation& operation, const NcclWait& wait) {
    if (operation.reduce == ReduceOp::premul_sum) return multiplied_sum(operation.type, operation.weight, wait);
    double sum = 0;
    bool equal = true;
    for (int rank = 0; rank < group_.size; ++rank) {
        sum += static_cast<double>(operation.weights[rank]);
        equal = equal && operation.weights[rank] == operation.weights[0];
    }
    if (equal) return ncclAvg;
    return multiplied_sum(operation.type, operation.weight / sum, wait);
}

Result<ncclRedOp_t> NcclTransport::multiplied_sum(DataType type, double factor, const NcclWait& wait) {
    auto scalar = scalar_of(type, factor);
    ncclRedOp_t reduction = ncclSum;
    auto made = communicator_->call(
        "ncclRedOpCreatePreMulSum",
        [&](ncclComm_t handle, cudaStream_t) {
            return process_->nccl().weighted_sum(&reduction, scalar.data(), nccl_type(type), ncclScalarHostImmediate,
                                                 handle);
        },
        wait);
    if (!made) return made.error();
    return reduction;
}

Result<std::unique_ptr<Transport>> NcclTransport::split(const SplitTerms& split, const RunTerms& terms) {
    if (!process_->nccl().features.split) return std::unique_ptr<Transport>();
    const auto number = board_->begin({.act = OperationSignature::Act::split});
    const bool takes_part = split.color >= 0;
    const NcclWait wait = wait_for(cat("split (operation ", number, ")"), terms);
    auto made = NcclComm::split(*communicator_, takes_part ? split.color : NCCL_SPLIT_NOCOLOR,
                                takes_part ? split.group.rank : 0, wait);
    if (!made) return end(made.error());
    if (!takes_part) return std::unique_ptr<Transport>();
    std::vector<NcclRank> ranks;
    for (const int member : split.members) ranks.push_back(board_->ranks()[static_cast<std::size_t>(member)]);
    auto news = NcclStatusBoard::start(split.group, std::move(ranks));
    if (!news) return end(news.error());
    std::unique_ptr<NcclTransport> child(new NcclTransport(split.group, process_, std::move(*news)));
    auto ready = child->watch_peers();
    if (ready) ready = child->set_up(std::move(*made));
    if (!ready) return end(ready.error());
    return std::unique_ptr<Transport>(std::move(child));
}

Result<void> NcclTransport::check_alive(Instant since) {
    if (process_->failed()) return process_->failure();
    return board_->check_alive(since);
}

void NcclTransport::abort(std::string_view why) {
    process_->fail({Errc::cancelled, cat(board_->here(), " aborted: ", why)});
}

}  // namespace muster::runtime
