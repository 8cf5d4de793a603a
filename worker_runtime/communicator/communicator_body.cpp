#include "worker_runtime/communicator/communicator_body.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/communicator/communicator_lane.h"
#include "worker_runtime/communicator/profile_range.h"
#include "worker_runtime/core/parts_table.h"

namespace muster::runtime {

namespace {

/// When a rank's connections end, the parent group usually learns the cause within this time.
constexpr Duration parents_message_timeout = 200ms;

Error invalid(const Operation& operation, std::string_view why) {
    return {Errc::invalid_argument, cat(describe(operation), ": ", why)};
}

Result<void> check_reduction(const Operation& operation) {
    const auto reduce = operation.reduce;
    if (reduce == ReduceOp::avg && !is_floating(operation.type))
        return invalid(operation, "an average of integers has no exact result; sum them, and divide as you need");
    if (is_bitwise(reduce) && is_floating(operation.type))
        return invalid(operation, "bitwise operations need integers; pass the elements as those of an integer type");
    if (reduce == ReduceOp::premul_sum && !is_floating(operation.type))
        return invalid(operation, "a factor of integers has no exact result; sum them, and multiply as you need");
    if (reduce == ReduceOp::premul_sum && !operation.weighted)
        return invalid(operation,
                       "it needs this rank's factor; use all_reduce_premul(), reduce_premul() or "
                       "reduce_scatter_premul()");
    if (reduce != ReduceOp::premul_sum && (!(operation.weight >= 0) || std::isinf(operation.weight)))
        return invalid(operation, "the weight must be a finite number >= 0");
    return {};
}

}  // namespace

void RoundGroups::add(CommunicatorBody& body) {
    const std::lock_guard lock(mutex_);
    bodies_.insert(&body);
    if (!ended_.empty()) body.abort(ended_, code_);
}

void RoundGroups::remove(CommunicatorBody& body) {
    const std::lock_guard lock(mutex_);
    bodies_.erase(&body);
}

void RoundGroups::end(std::string_view why, Errc code) {
    const std::lock_guard lock(mutex_);
    if (ended_.empty()) {
        ended_ = why;
        code_ = code;
    }
    for (auto* const body : bodies_) body->abort(why, code);
}

void RoundGroups::begin_again() {
    const std::lock_guard lock(mutex_);
    ended_.clear();
    has_failed_ = false;
}

std::size_t RoundGroups::count() const {
    const std::lock_guard lock(mutex_);
    return bodies_.size();
}

bool RoundGroups::has_failed() const {
    const std::lock_guard lock(mutex_);
    return has_failed_;
}

void RoundGroups::note_failure() {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
}

CommunicatorBody::CommunicatorBody(Terms terms, std::unique_ptr<Transport> transport)
    : terms_(std::move(terms)), transport_(std::move(transport)) {
    terms_.timeout = std::min(terms_.timeout, timeout_max);
    auto& lane = lanes_[{-1, false}];
    lane = std::make_unique<Lane>();
    collectives_ = lane.get();
    if (terms_.flight) flight_group_ = terms_.flight->add_group(terms_.group.id, rank(), size());
    if (terms_.groups) terms_.groups->add(*this);
}

CommunicatorBody::~CommunicatorBody() {
    if (terms_.groups) terms_.groups->remove(*this);
    bool unfinished = false;
    for (auto& [key, lane] : lanes_) {
        const std::lock_guard lock(lane->mutex);
        unfinished = unfinished || lane->busy || !lane->queue.empty();
        lane->stop = true;
        lane->changed.notify_all();
    }
    if (unfinished) abort("the communicator was destroyed while operations were in progress");
    for (auto& [key, lane] : lanes_) {
        if (lane->thread.joinable()) lane->thread.join();
    }
}

Result<void> CommunicatorBody::check(const Operation& operation) const {
    const bool paired = is_paired(operation.kind);
    if (paired || has_root(operation.kind)) {
        if (operation.peer < 0 || operation.peer >= size()) {
            return invalid(operation, cat("the ranks are 0 to ", size() - 1));
        }
        if (paired && operation.peer == rank()) return invalid(operation, "a rank cannot send to itself");
    }
    if (operation.kind == OperationKind::all_to_all_uneven) return check_parts(operation);
    const auto kind = operation.kind;
    const bool is_root = operation.peer == rank();
    const bool reads =
        kind != OperationKind::barrier && kind != OperationKind::receive && (kind != OperationKind::scatter || is_root);
    const bool writes = kind != OperationKind::barrier && kind != OperationKind::send &&
                        ((kind != OperationKind::gather && kind != OperationKind::reduce) || is_root);
    if (operation.count > 0 && ((reads && !operation.input) || (writes && !operation.output))) {
        return invalid(operation, "no buffer was given");
    }
    MUSTER_TRY(check_reduction(operation));
    return transport_->check(operation);
}

Result<void> CommunicatorBody::check_parts(const Operation& operation) const {
    if (!operation.parts) return invalid(operation, "no parts were given");
    const auto fit = [&](const std::vector<Part>& parts, const void* memory, std::string_view verb) -> Result<void> {
        if (parts.size() != static_cast<std::size_t>(size()))
            return invalid(operation, cat(parts.size(), " parts that this rank ", verb, "; it needs one for each of ",
                                          size(), " ranks"));
        const std::size_t most = memory_bytes_max / size_of(operation.type);
        for (const auto& part : parts) {
            if (part.count > most || part.offset > most)
                return invalid(operation, cat("a part of ", part.count, " elements from ", part.offset,
                                              " on is more than any memory holds (a negative number?)"));
            if (part.count > 0 && !memory) return invalid(operation, "no buffer was given");
        }
        return {};
    };
    MUSTER_TRY(fit(operation.parts->sent, operation.input, "sends"));
    return fit(operation.parts->expected, operation.output, "expects");
}

CommunicatorBody::Lane& CommunicatorBody::lane_of(const Operation& operation) {
    const bool sends = operation.kind == OperationKind::send;
    if (!is_paired(operation.kind)) return *collectives_;
    const std::lock_guard lock(lanes_mutex_);
    auto& lane = lanes_[{operation.peer, sends}];
    if (!lane) lane = std::make_unique<Lane>();
    return *lane;
}

/// A transport may need memory in the size of the operation, as for another rank's part of a sum. The other ranks wait
/// for this one, and the lane for the operation's end.
Result<void> CommunicatorBody::carry_out(const Operation& operation, const RunTerms& terms) {
    try {
        return is_paired(operation.kind) ? transport_->transfer(operation, terms) : transport_->run(operation, terms);
    } catch (const std::bad_alloc&) {
        // It begins with the rank, as why_no_part() of another one expects.
        return transport_->fail(
            {Errc::limit_exceeded,
             cat("rank ", terms_.group.in_root(rank()), " has too little memory for ", describe(operation),
                 " on communicator ", terms_.group.id, "; give the job more memory, or raise ulimit -v")});
    }
}

Result<void> CommunicatorBody::execute(Lane& lane, const Operation& operation, Duration timeout, WaitMode patience) {
    if (failed_.load(std::memory_order_acquire)) return status();
    const RunTerms terms{.deadline = std::chrono::steady_clock::now() + timeout, .patience = patience};
    const auto entry = terms_.flight ? terms_.flight->begin(flight_group_, ++lane.number, operation) : 0;
    const ProfileRange range([&] { return range_name(operation); });
    auto done = carry_out(operation, terms);
    if (terms_.flight) terms_.flight->end(entry, done.has_value());
    if (done) return done;
    if (may_be_contradiction(operation, done.error()) && transport_->check_alive(terms.deadline - timeout)) return done;
    return fail(done.error());
}

Result<void> CommunicatorBody::run(const Operation& operation, Duration timeout) {
    timeout = std::min(timeout, timeout_max);
    MUSTER_TRY(check(operation));
    Lane& lane = lane_of(operation);
    {
        std::unique_lock lock(lane.mutex);
        if (lane.busy || !lane.queue.empty()) {
            lock.unlock();
            return start(operation, timeout).wait();
        }
        lane.busy = true;
    }
    auto done = execute(lane, operation, timeout, WaitMode::eager);
    {
        const std::lock_guard lock(lane.mutex);
        lane.no_longer_busy();
    }
    return done;
}

Work CommunicatorBody::start(const Operation& operation, Duration timeout) {
    timeout = std::min(timeout, timeout_max);
    auto state = std::make_shared<WorkState>();
    if (auto checked = check(operation); !checked) {
        finish(*state, checked);
        return Work(std::move(state));
    }
    Lane& lane = lane_of(operation);
    const std::lock_guard lock(lane.mutex);
    lane.queue.push_back({operation, timeout, state});
    if (!lane.thread.joinable()) {
        auto thread = start_thread("muster-lane", [this, &lane] { serve(lane); });
        if (!thread) {
            lane.queue.pop_back();
            finish(*state, fail(thread.error()));
            return Work(std::move(state));
        }
        lane.thread = std::move(*thread);
    }
    lane.changed.notify_all();
    return Work(std::move(state));
}

Result<Memory> CommunicatorBody::allocate(std::size_t size_bytes) {
    if (size_bytes > memory_bytes_max) {
        return Error{Errc::limit_exceeded, cat("cannot reserve ", size_bytes, " bytes for communicator ",
                                               terms_.group.id, ": no host has as much (a negative size?)")};
    }
    // allocate() is a collective: it waits for operations started before it.
    Lane& lane = *collectives_;
    std::unique_lock lock(lane.mutex);
    lane.idle.wait(lock, [&lane] { return !lane.busy && lane.queue.empty(); });
    if (failed_.load(std::memory_order_acquire)) return status().error();
    lane.busy = true;
    lock.unlock();
    const RunTerms terms{.deadline = std::chrono::steady_clock::now() + terms_.timeout};
    // The flight record has it as a barrier with a count, as the signatures do.
    const auto entry = terms_.flight ? terms_.flight->begin(flight_group_, ++lane.number, {.count = size_bytes}) : 0;
    auto memory = transport_->allocate(size_bytes, terms);
    if (terms_.flight) terms_.flight->end(entry, memory.has_value());
    lock.lock();
    lane.no_longer_busy();
    lock.unlock();
    // Too little memory is the only failure after which the group still works.
    if (!memory && memory.error().code != Errc::limit_exceeded) return fail(memory.error());
    return memory;
}

Result<std::unique_ptr<Communicator>> CommunicatorBody::split(int color, int key) {
    struct Choice {
        std::int32_t color;
        std::int32_t key;
    };
    const Choice own{color, key};
    std::vector<Choice> all(static_cast<std::size_t>(size()));
    const ConstBuffer input(&own, 2, DataType::i32);
    const Buffer output{.data = all.data(), .count = all.size() * 2, .type = DataType::i32};
    MUSTER_TRY(run(all_gather(input, output), terms_.timeout));
    const auto number = splits_++;
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank) {
        if (all[static_cast<std::size_t>(rank)].color == color) members.push_back(rank);
    }
    std::stable_sort(members.begin(), members.end(), [&all](int a, int b) {
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    Terms terms = terms_;
    terms.group.id = cat(terms_.group.id, "/", number, ".", color);
    terms.group.size = static_cast<int>(members.size());
    terms.group.root_ranks = terms_.group.in_root(members);
    terms.group.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    auto transport = make_part({.group = terms.group, .members = std::move(members), .color = color});
    if (!transport) return fail(transport.error());
    if (color < 0) return std::unique_ptr<Communicator>();
    return std::make_unique<Communicator>(std::make_shared<CommunicatorBody>(std::move(terms), std::move(*transport)));
}

Result<void> CommunicatorBody::check_alive(Instant since) {
    MUSTER_TRY(status());
    return transport_->check_alive(since);
}

Result<std::unique_ptr<Transport>> CommunicatorBody::make_part(const SplitTerms& split) {
    const Instant now = std::chrono::steady_clock::now();
    auto made = transport_->split(split, {.deadline = now + terms_.timeout});
    if (!made || *made || split.color < 0) return made;
    auto group = split.group;
    group.parent = std::make_shared<ParentGroup>([this, now] { return check_alive(now); }, terms_.group.size);
    made = terms_.make_transport(group);
    group.parent->let_go();
    if (made) return made;
    const Error why = why_no_part(made.error());
    // If the communicator has ended, the other ranks already learn its cause: an abort() names the rank that called it.
    MUSTER_TRY(status());
    // Ranks that wait for this rank in the split learn the reason here.
    return transport_->fail(why);
}

/// The cause of a failed split. The split may see a dying rank's connections end, or another rank fail because of it,
/// before this communicator receives the cause. That cause names the rank that failed first, so this waits for it.
Error CommunicatorBody::why_no_part(const Error& error) {
    const Instant began = std::chrono::steady_clock::now();
    // This rank lacks memory if the message names no rank; messages from other ranks begin with "rank ".
    const bool lacks = error.code == Errc::limit_exceeded && !error.context.starts_with("rank ");
    const bool is_end_of_another =
        error.code == Errc::peer_closed || error.code == Errc::unreachable || error.code == Errc::io;
    const Instant end = began + (is_end_of_another ? parents_message_timeout : Duration::zero());
    for (;;) {
        MUSTER_TRY(check_alive(began));
        if (std::chrono::steady_clock::now() >= end)
            return lacks ? with_context(error, cat("rank ", terms_.group.in_root(rank()),
                                                   " in a split of communicator ", terms_.group.id))
                         : error;
        std::this_thread::sleep_for(1ms);
    }
}

void CommunicatorBody::abort(std::string_view why, Errc code) {
    keep_failure({code, cat("communicator ", terms_.group.id, " was aborted: ", why)});
    transport_->abort(why);
}

Result<void> CommunicatorBody::status() const {
    if (!failed_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(failure_mutex_);
    return *failure_;
}

Error CommunicatorBody::fail(Error error) {
    if (terms_.groups) terms_.groups->note_failure();
    return keep_failure(std::move(error));
}

Error CommunicatorBody::keep_failure(Error error) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
        failure_ = std::move(error);
        if (terms_.flight) terms_.flight->note_failure(failure_->context);
    }
    failed_.store(true, std::memory_order_release);
    return *failure_;
}

}  // namespace muster::runtime

namespace muster {

bool Work::done() const {
    return !state_ || state_->over.load(std::memory_order_acquire);
}

Result<void> Work::wait() {
    if (!state_) return {};
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->over.load(std::memory_order_acquire); });
    if (state_->failure) return *state_->failure;
    return {};
}

Duration Work::took() const {
    return state_ && done() ? state_->took : Duration{};
}

Communicator::Communicator(std::shared_ptr<runtime::CommunicatorBody> body) : body_(std::move(body)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
int Communicator::rank() const {
    return body_->rank();
}
int Communicator::size() const {
    return body_->size();
}
Duration Communicator::timeout() const {
    return body_->timeout();
}
runtime::DeviceQueue* Communicator::device() const {
    return body_->device();
}
std::string_view Communicator::transport() const {
    return body_->transport();
}
Result<void> Communicator::run(const Operation& operation) {
    return body_->run(operation, body_->timeout());
}
Result<void> Communicator::run(const Operation& operation, Duration timeout) {
    return body_->run(operation, timeout);
}
Result<int> Communicator::receive_any(Buffer buffer, std::uint32_t tag, Duration timeout) {
    return body_->receive_any(buffer, tag, timeout);
}
Work Communicator::start(const Operation& operation) {
    return body_->start(operation, body_->timeout());
}
Work Communicator::start(const Operation& operation, Duration timeout) {
    return body_->start(operation, timeout);
}
Result<Memory> Communicator::allocate(std::size_t size_bytes) {
    return body_->allocate(size_bytes);
}
Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
    return body_->split(color, key);
}
void Communicator::abort(std::string_view why) {
    body_->abort(why);
}
Result<void> Communicator::status() const {
    return body_->status();
}

}  // namespace muster
