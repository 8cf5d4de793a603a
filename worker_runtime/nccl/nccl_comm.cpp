#include "worker_runtime/nccl/nccl_comm.h"

#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/nccl/pace.h"

namespace muster::runtime {

namespace {

/// How often NCCL is asked for an error while an operation runs.
constexpr Duration error_interval = 1ms;

}  // namespace

Result<std::shared_ptr<NcclComm>> NcclComm::make(const std::shared_ptr<NcclProcess>& process, std::string_view what,
                                                 const Init& init, const NcclWait& wait) {
    auto stream = MUSTER_TRY(NcclQueue::make(process));
    std::shared_ptr<NcclComm> made(new NcclComm(process, std::move(stream)));
    // Added first, because a communicator that is still connecting must be aborted with the others.
    process->add(made);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto begun = made->enter(what, [&] { return init(&made->handle_, &config); });
    if (begun) begun = made->poll(what, wait);
    if (begun) return made;
    const Error first = process->fail(wait.cause_of(begun.error()));
    process->wait_over();
    return first;
}

Result<std::shared_ptr<NcclComm>> NcclComm::split(NcclComm& parent, int color, int key, const NcclWait& wait) {
    const auto& process = parent.process_;
    auto stream = MUSTER_TRY(NcclQueue::make(process));
    std::shared_ptr<NcclComm> child(new NcclComm(process, std::move(stream)));
    process->add(child);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // NCCL writes it when the parent's call is complete, not when it returns.
    auto done = parent.call(
        "ncclCommSplit",
        [&](ncclComm_t handle, cudaStream_t) {
            return process->nccl().split(handle, color, key, &child->arriving_, &config);
        },
        wait);
    if (done && color == NCCL_SPLIT_NOCOLOR) {
        process->remove(child);
        return std::shared_ptr<NcclComm>();
    }
    if (done) child->adopt();
    if (done) done = child->poll("ncclCommSplit", wait);
    if (done) return child;
    const Error first = process->fail(wait.cause_of(done.error()));
    process->wait_over();
    return first;
}

Result<void> NcclComm::enter(std::string_view what, const std::function<ncclResult_t()>& function) {
    const auto used = MUSTER_TRY(process_->use_device());
    const std::lock_guard lock(calls_);
    if (process_->failed()) return process_->failure();
    const auto result = function();
    return process_->nccl().check(result, what, handle_);
}

Result<void> NcclComm::ask(std::string_view what, bool& over) {
    const auto used = MUSTER_TRY(process_->use_device());
    const std::lock_guard lock(calls_);
    if (process_->failed()) return process_->failure();
    ncclResult_t state = ncclSuccess;
    const auto& nccl = process_->nccl();
    MUSTER_TRY(nccl.check(nccl.async_error(handle_, &state), what, handle_));
    over = state != ncclInProgress;
    return nccl.check(state, what, handle_);
}

Result<void> NcclComm::until(const std::function<Result<bool>()>& over, const NcclWait& wait) {
    Pace pace(wait.terms.patience);
    for (;;) {
        if (MUSTER_TRY(over())) return {};
        if (process_->failed()) return process_->failure();
        MUSTER_TRY(wait.check_alive());
        if (std::chrono::steady_clock::now() >= wait.terms.deadline) return wait.late();
        pace.rest();
    }
}

Result<void> NcclComm::poll(std::string_view what, const NcclWait& wait) {
    return until(
        [&]() -> Result<bool> {
            bool over = false;
            MUSTER_TRY(ask(what, over));
            return over;
        },
        wait);
}

Result<void> NcclComm::call(std::string_view what, const Call& function, const NcclWait& wait) {
    auto begun = enter(what, [&] { return function(handle_, stream_->stream()); });
    return begun ? poll(what, wait) : begun;
}

Result<void> NcclComm::run(std::string_view what, const Call& function, const NcclWait& wait) {
    auto begun = call(what, function, wait);
    return begun ? finish(what, wait) : begun;
}

Result<bool> NcclComm::passed(std::string_view what, std::size_t number, Instant& asked) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    const auto state = cuda.event_query(stream_->event(number));
    if (state != cudaSuccess && state != cudaErrorNotReady) return cuda.check(state, what).error();
    const Instant now = std::chrono::steady_clock::now();
    // The event also occurs after an abort or a failure, so the result is valid only if NCCL reports no error.
    if (state == cudaSuccess || now - asked >= error_interval) {
        asked = now;
        bool ignored = false;
        if (auto good = ask(what, ignored); !good) return good.error();
    }
    return state == cudaSuccess;
}

Result<void> NcclComm::finish(std::string_view what, const NcclWait& wait) {
    MUSTER_TRY(stream_->mark(what, 0));
    Instant asked = std::chrono::steady_clock::now();
    return until([&] { return passed(what, 0, asked); }, wait);
}

Result<void> NcclComm::enlist(void* memory, std::size_t size_bytes, const NcclWait& wait) {
    void* registration = nullptr;
    auto done = call(
        "ncclCommRegister",
        [&](ncclComm_t handle, cudaStream_t) {
            return process_->nccl().enlist(handle, memory, size_bytes, &registration);
        },
        wait);
    if (!done) return done;
    const std::lock_guard lock(calls_);
    registrations_[memory] = registration;
    return {};
}

void NcclComm::forget(void* memory) {
    const auto used = process_->use_device();
    if (!used) return;
    const std::lock_guard lock(calls_);
    const auto found = registrations_.find(memory);
    if (found == registrations_.end() || process_->failed()) return;
    process_->nccl().delist(handle_, found->second);
    registrations_.erase(found);
}

bool NcclComm::close() {
    const auto& nccl = process_->nccl();
    if (process_->failed()) {
        process_->wait_over();
        return false;
    }
    const auto late = [this] {
        return Error{Errc::timed_out, cat("a communicator could not be closed within ",
                                          describe(process_->terms().close_limit), ": not all ranks closed it")};
    };
    const NcclWait wait{.terms = {.deadline = std::chrono::steady_clock::now() + process_->terms().close_limit,
                                  .patience = WaitMode::frugal},
                        .check_alive = [] { return Result<void>(); },
                        .late = late};
    deregister_all();
    auto done = call(
        "ncclCommFinalize", [&nccl](ncclComm_t handle, cudaStream_t) { return nccl.finalize(handle); }, wait);
    // Destroying may wait for peers for ever and cannot be polled, so it runs in its own thread.
    std::atomic<bool> destroyed = false;
    std::thread destroyer;
    if (done) {
        auto thread = start_thread("muster-nccl-bye", [&] {
            // If it cannot be destroyed, only its memory is lost.
            [[maybe_unused]] const auto gone = enter("ncclCommDestroy", [&] {
                const auto result = nccl.destroy(handle_);
                handle_ = nullptr;
                return result;
            });
            destroyed.store(true, std::memory_order_release);
        });
        if (thread) destroyer = std::move(*thread);
        done = until([&destroyed]() -> Result<bool> { return destroyed.load(std::memory_order_acquire); }, wait);
    }
    if (!done) {
        process_->fail(done.error());
        process_->wait_over();
    }
    if (destroyer.joinable()) destroyer.join();
    process_->remove(shared_from_this());
    return done.has_value();
}

void NcclComm::settle() {
    // A later enter() checks for a failure once it has the mutex, and there is one now.
    const std::lock_guard lock(calls_);
}

void NcclComm::deregister_all() {
    const auto used = process_->use_device();
    if (!used) return;
    const std::lock_guard lock(calls_);
    for (const auto& [memory, registration] : registrations_) process_->nccl().delist(handle_, registration);
    registrations_.clear();
}

void NcclComm::abort() {
    const std::lock_guard lock(calls_);
    if (handle_ != nullptr) process_->nccl().abort(handle_);
    handle_ = nullptr;
}

void NcclComm::adopt() {
    const std::lock_guard lock(calls_);
    if (arriving_ != nullptr) handle_ = std::exchange(arriving_, nullptr);
}

}  // namespace muster::runtime
