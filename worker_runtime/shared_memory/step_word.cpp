#include "worker_runtime/shared_memory/step_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace muster::runtime {

namespace {

constexpr std::uint64_t failed_bit = 1;
constexpr std::uint64_t left_bit = 2;
constexpr int step_shift = 2;
/// How often a sleeper looks at the clock, should a wake-up ever be lost.
constexpr Duration nap_max = 1s;

/// The half of the word that changes with every step; the futex sleeps on this.
std::uint32_t* low_half(StepWord& word) {
    static_assert(sizeof(word.value) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return reinterpret_cast<std::uint32_t*>(&word.value);
}

void wake_sleepers(StepWord& word) {
    // Sequentially consistent on both sides: either the sleeper sees the new value, or we see the sleeper.
    if (word.sleepers.load(std::memory_order_seq_cst) == 0) return;
    ::syscall(SYS_futex, low_half(word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Has the wait an end? `end` is it then.
bool has_end(std::uint64_t value, std::uint64_t step, WaitEnd& end) {
    if (value >> step_shift >= step) {
        end = WaitEnd::reached;
    } else if (value & failed_bit) {
        end = WaitEnd::failed;
    } else if (value & left_bit) {
        end = WaitEnd::left;
    } else {
        return false;
    }
    return true;
}

}  // namespace

bool publish_step(StepWord& word) {
    auto value = word.value.load(std::memory_order_relaxed);
    do {
        if (value & failed_bit) return false;
    } while (
        !word.value.compare_exchange_weak(value, value + (std::uint64_t{1} << step_shift), std::memory_order_seq_cst));
    wake_sleepers(word);
    return true;
}

void mark_failed(StepWord& word) {
    word.value.fetch_or(failed_bit, std::memory_order_seq_cst);
    wake_sleepers(word);
}

void mark_left(StepWord& word) {
    word.value.fetch_or(left_bit, std::memory_order_seq_cst);
    wake_sleepers(word);
}

std::uint64_t steps_of(const StepWord& word) {
    return word.value.load(std::memory_order_acquire) >> step_shift;
}
bool has_left(const StepWord& word) {
    return (word.value.load(std::memory_order_acquire) & left_bit) != 0;
}
bool has_failed(const StepWord& word) {
    return (word.value.load(std::memory_order_acquire) & failed_bit) != 0;
}

WaitEnd await_step(StepWord& word, std::uint64_t step, Spin spin, Instant deadline) {
    WaitEnd end{};
    for (int i = 0; i < spin.pauses; ++i) {
        if (has_end(word.value.load(std::memory_order_acquire), step, end)) return end;
        pause();
    }
    for (int i = 0; i < spin.yields; ++i) {
        if (has_end(word.value.load(std::memory_order_acquire), step, end)) return end;
        ::sched_yield();
    }
    word.sleepers.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
        auto value = word.value.load(std::memory_order_seq_cst);
        if (has_end(value, step, end)) break;
        const auto left = deadline - std::chrono::steady_clock::now();
        if (left <= Duration::zero()) {
            if (!word.value.compare_exchange_strong(value, value | failed_bit, std::memory_order_seq_cst)) continue;
            wake_sleepers(word);
            end = WaitEnd::timed_out;
            break;
        }
        const auto nap = std::min<Duration>(left, nap_max);
        const timespec limit{.tv_sec = static_cast<time_t>(nap / 1s), .tv_nsec = static_cast<long>((nap % 1s).count())};
        ::syscall(SYS_futex, low_half(word), FUTEX_WAIT, static_cast<std::uint32_t>(value), &limit, nullptr, 0);
    }
    word.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return end;
}

}  // namespace muster::runtime
