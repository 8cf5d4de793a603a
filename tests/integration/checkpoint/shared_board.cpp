#include "tests/integration/checkpoint/shared_board.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::test {

namespace {

struct Slot {
    char key[128];
    std::uint32_t size;
    char value[2000];
};

timespec at(Instant deadline) {
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    return {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
}

}  // namespace

struct SharedBoard::Memory {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    std::array<Slot, 64> slots;  // one with an empty key is free
    std::atomic<std::int64_t> acknowledged;
    std::atomic<int> counted;
    std::atomic<bool> complained;
    char complaint[2000];

    Slot* find(std::string_view key) {
        const auto found = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return key == slot.key; });
        return found != slots.end() ? &*found : nullptr;
    }
};

class SharedBoard::Connection final : public Store {
  public:
    explicit Connection(Memory& memory) : memory_(memory) {}

    Result<void> set(std::string_view key, std::string_view value) override {
        MUSTER_CHECK(!key.empty() && key.size() < sizeof Slot::key && value.size() <= sizeof Slot::value, key);
        ::pthread_mutex_lock(&memory_.mutex);
        auto* slot = memory_.find(key);
        if (slot == nullptr) slot = memory_.find("");
        MUSTER_CHECK(slot != nullptr, key);
        std::memcpy(slot->key, key.data(), key.size());
        std::memcpy(slot->value, value.data(), value.size());
        slot->size = static_cast<std::uint32_t>(value.size());
        ::pthread_cond_broadcast(&memory_.changed);
        ::pthread_mutex_unlock(&memory_.mutex);
        return {};
    }
    Result<std::string> get(std::string_view key, Duration timeout) override {
        const auto deadline = at(std::chrono::steady_clock::now() + timeout);
        ::pthread_mutex_lock(&memory_.mutex);
        auto* slot = memory_.find(key);
        while (slot == nullptr && ::pthread_cond_timedwait(&memory_.changed, &memory_.mutex, &deadline) == 0) {
            slot = memory_.find(key);
        }
        auto value = slot != nullptr ? Result<std::string>(std::string(slot->value, slot->size))
                                     : Error{Errc::timed_out, cat(key, " was not set")};
        ::pthread_mutex_unlock(&memory_.mutex);
        return value;
    }
    Result<std::int64_t> add(std::string_view, std::int64_t) override { return Error{Errc::unsupported, "add"}; }
    Result<bool> erase(std::string_view key) override {
        ::pthread_mutex_lock(&memory_.mutex);
        auto* slot = memory_.find(key);
        if (slot != nullptr) std::memset(slot->key, 0, sizeof slot->key);
        ::pthread_mutex_unlock(&memory_.mutex);
        return slot != nullptr;
    }

  private:
    Memory& memory_;
};

class SharedBoard::Place final : public runtime::MeetingPlace {
  public:
    explicit Place(Memory& memory) : store_(memory) {}

    Result<void> publish(std::string_view key, std::string_view value, Instant /*deadline*/) override {
        return store_.set(key, value);
    }
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override {
        std::vector<std::string> found;
        for (const auto& key : keys) {
            auto value = store_.get(key, wait.deadline - std::chrono::steady_clock::now());
            if (!value) return value.error();
            found.push_back(std::move(*value));
        }
        return found;
    }

  private:
    Connection store_;
};

SharedBoard::SharedBoard() {
    void* const memory = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUSTER_CHECK(memory != MAP_FAILED, errno);
    memory_ = static_cast<Memory*>(memory);  // of zeros, as the atomics and the slots begin
    pthread_mutexattr_t shared_mutex;
    ::pthread_mutexattr_init(&shared_mutex);
    ::pthread_mutexattr_setpshared(&shared_mutex, PTHREAD_PROCESS_SHARED);
    ::pthread_mutex_init(&memory_->mutex, &shared_mutex);
    pthread_condattr_t shared_condition;
    ::pthread_condattr_init(&shared_condition);
    ::pthread_condattr_setpshared(&shared_condition, PTHREAD_PROCESS_SHARED);
    ::pthread_condattr_setclock(&shared_condition, CLOCK_MONOTONIC);
    ::pthread_cond_init(&memory_->changed, &shared_condition);
}

SharedBoard::~SharedBoard() {
    ::munmap(memory_, sizeof(Memory));
}

std::unique_ptr<Store> SharedBoard::connect() const {
    return std::make_unique<Connection>(*memory_);
}

std::shared_ptr<runtime::MeetingPlace> SharedBoard::place() const {
    return std::make_shared<Place>(*memory_);
}

void SharedBoard::acknowledge(std::int64_t step) const {
    auto greatest = memory_->acknowledged.load();
    while (greatest < step && !memory_->acknowledged.compare_exchange_weak(greatest, step)) {
    }
}

std::int64_t SharedBoard::acknowledged() const {
    return memory_->acknowledged;
}

void SharedBoard::count() const {
    ++memory_->counted;
}

int SharedBoard::counted() const {
    return memory_->counted;
}

void SharedBoard::print_error(const std::string& text) const {
    if (text.empty() || memory_->complained.exchange(true)) return;
    std::memcpy(memory_->complaint, text.data(), std::min(text.size(), sizeof memory_->complaint - 1));
}

std::string SharedBoard::complaint() const {
    return memory_->complaint;
}

}  // namespace muster::test
