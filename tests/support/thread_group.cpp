#include "tests/support/thread_group.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/communicator/communicator_body.h"

namespace muster::test {

namespace {

constexpr auto patience = std::chrono::seconds(60);

std::byte* bytes(void* data) {
    return static_cast<std::byte*>(data);
}
const std::byte* bytes(const void* data) {
    return static_cast<const std::byte*>(data);
}

/// Elements [first, first + count) of every rank's input become one, for `outputs`.
void reduce_part(const std::vector<Operation>& operations, std::size_t first, std::size_t count,
                 const std::vector<void*>& outputs) {
    const auto& one = operations[0];
    std::vector<const void*> inputs;
    std::vector<double> weights;
    for (const auto& each : operations) {
        inputs.push_back(bytes(each.input) + first * size_of(one.type));
        weights.push_back(each.weight);
    }
    if (operations.size() == 1) weights = {1};  // alone, elements stay as they are, as over the other transports
    runtime::reduce({.type = one.type,
                     .reduce = one.reduce,
                     .inputs = inputs.data(),
                     .input_count = static_cast<int>(inputs.size()),
                     .outputs = outputs.data(),
                     .output_count = static_cast<int>(outputs.size()),
                     .count = count,
                     .weights = weights.data()});
}

std::span<std::byte>* aligned_memory(std::size_t size) {
    auto* const data = static_cast<std::byte*>(::operator new(size + 1, std::align_val_t(4096)));
    std::memset(data, 0, size);
    return new std::span<std::byte>(data, size);
}

}  // namespace

class ThreadGroup::Transport final : public runtime::Transport {
  public:
    Transport(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

    [[nodiscard]] std::string_view name() const override { return "threads"; }
    Result<void> run(const Operation& operation, const runtime::RunTerms& terms) override {
        return group_.meet(rank_, operation, terms.deadline);
    }
    Result<void> transfer(const Operation&, const runtime::RunTerms&) override {
        return Error{Errc::unsupported, "threads have no send and receive"};
    }
    Result<Memory> allocate(std::size_t size_bytes, const runtime::RunTerms& terms) override {
        // As a collective whose size is compared like any other's.
        Operation operation;
        operation.count = size_bytes;
        if (auto met = group_.meet(rank_, operation, terms.deadline); !met) return met.error();
        return Memory(std::shared_ptr<std::span<std::byte>>(aligned_memory(size_bytes), [](auto* memory) {
            ::operator delete(memory->data(), std::align_val_t(4096));
            delete memory;
        }));
    }
    void abort(std::string_view why) override {
        const std::lock_guard lock(group_.mutex_);
        if (!group_.failure_) group_.failure_ = Error{Errc::cancelled, std::string(why)};
        group_.changed_.notify_all();
    }

  private:
    ThreadGroup& group_;
    int rank_;
};

ThreadGroup::ThreadGroup(int size) : size_(size), operations_(static_cast<std::size_t>(size)) {}

std::string ThreadGroup::run(const std::function<std::string(Communicator&)>& body) {
    std::vector<std::string> complaints(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
        threads.emplace_back([&, rank] {
            runtime::CommunicatorBody::Terms terms{
                .group = {.rank = rank, .size = size_, .id = "world", .place = nullptr},
                .timeout = patience,
                .make_transport = {}};
            Communicator communicator(std::make_shared<runtime::CommunicatorBody>(
                std::move(terms), std::make_unique<Transport>(*this, rank)));
            const auto complaint = body(communicator);
            if (!complaint.empty()) complaints[static_cast<std::size_t>(rank)] = cat("rank ", rank, ": ", complaint);
            // The others must not wait for a rank that has given up.
            if (!complaint.empty()) communicator.abort(complaint);
        });
    }
    for (auto& thread : threads) thread.join();
    const auto first =
        std::find_if(complaints.begin(), complaints.end(), [](const auto& each) { return !each.empty(); });
    return first == complaints.end() ? std::string() : *first;
}

std::vector<Operation> ThreadGroup::history() const {
    const std::lock_guard lock(mutex_);
    return history_;
}

bool ThreadGroup::wait_for_history(std::size_t count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return history_.size() >= count; });
}

void ThreadGroup::clear_history() {
    const std::lock_guard lock(mutex_);
    history_.clear();
}

void ThreadGroup::fail_after(std::size_t count) {
    const std::lock_guard lock(mutex_);
    fail_after_ = count;
}

bool ThreadGroup::aborted() const {
    const std::lock_guard lock(mutex_);
    return failure_ && failure_->code == Errc::cancelled;
}

void ThreadGroup::hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
}

void ThreadGroup::let_go() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
}

bool ThreadGroup::wait_for_arrival() const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return arrived_ == size_; });
}

Result<void> ThreadGroup::meet(int rank, const Operation& operation, Instant deadline) {
    std::unique_lock lock(mutex_);
    if (failure_) return *failure_;
    operations_[static_cast<std::size_t>(rank)] = operation;
    const std::uint64_t mine = generation_;
    if (++arrived_ == size_) changed_.notify_all();
    const auto over = [&] { return failure_ || generation_ != mine || (arrived_ == size_ && !held_); };
    if (!changed_.wait_until(lock, deadline, over)) {
        failure_ = Error{Errc::timed_out, cat(describe(operation), ": not all ranks came")};
        changed_.notify_all();
    }
    if (generation_ != mine && !failed_generation_) return {};
    if (failure_) return *failure_;
    if (fail_after_ && (*fail_after_)-- == 0) failure_ = Error{Errc::peer_closed, "rank 0 died"};
    if (!failure_) failure_ = difference();
    if (!failure_) perform();
    failed_generation_ = failure_.has_value();
    history_.push_back(operations_[0]);
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
    if (failure_) return *failure_;
    return {};
}

std::optional<Error> ThreadGroup::difference() const {
    for (std::size_t rank = 1; rank < operations_.size(); ++rank) {
        const auto& a = operations_[0];
        const auto& b = operations_[rank];
        const bool same = a.kind == b.kind && a.type == b.type && a.reduce == b.reduce && a.count == b.count &&
                          a.peer == b.peer && a.tag == b.tag;
        if (!same) {
            return Error{Errc::invalid_argument, cat("rank 0 runs ", describe(a), " with tag ", a.tag, ", rank ", rank,
                                                     " ", describe(b), " with tag ", b.tag)};
        }
    }
    return std::nullopt;
}

void ThreadGroup::perform() {
    const auto& one = operations_[0];
    const std::size_t piece_bytes = one.count * size_of(one.type);
    std::vector<void*> outputs;
    for (const auto& each : operations_) outputs.push_back(each.output);
    for (std::size_t rank = 0; rank < operations_.size(); ++rank) {
        const auto& each = operations_[rank];
        switch (one.kind) {
            case OperationKind::reduce_scatter: {
                // Pieces may lie in the inputs, so none is written before all are read: rank r's piece of the inputs is
                // read by its own reduction only.
                reduce_part(operations_, rank * one.count, one.count, {each.output});
                break;
            }
            case OperationKind::all_gather:
                for (void* const output : outputs)
                    std::memmove(bytes(output) + rank * piece_bytes, each.input, piece_bytes);
                break;
            case OperationKind::all_to_all:
                for (std::size_t to = 0; to < outputs.size(); ++to) {
                    std::memcpy(bytes(outputs[to]) + rank * piece_bytes, bytes(each.input) + to * piece_bytes,
                                piece_bytes);
                }
                break;
            case OperationKind::broadcast:
                std::memmove(each.output, operations_[static_cast<std::size_t>(one.peer)].input, piece_bytes);
                break;
            default: break;
        }
    }
    if (one.kind == OperationKind::all_reduce) reduce_part(operations_, 0, one.count, outputs);
}

}  // namespace muster::test
