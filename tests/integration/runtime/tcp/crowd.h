// What many ranks in processes of their own meet with, and what they count.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/base/check.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// A store in memory that processes share: make it before they are forked. Its size is fixed, so that a thousand ranks
/// can read each other's values a million times within a second or two.
class MeetingInPages final : public runtime::MeetingPlace {
  public:
    explicit MeetingInPages(std::size_t keys_max) : slot_count_(2 * keys_max) {
        void* const pages = ::mmap(nullptr, slot_count_ * sizeof(Slot), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        MUSTER_CHECK(pages != MAP_FAILED, keys_max);
        slots_ = static_cast<Slot*>(pages);
    }
    ~MeetingInPages() override { ::munmap(slots_, slot_count_ * sizeof(Slot)); }
    MeetingInPages(const MeetingInPages&) = delete;
    MeetingInPages& operator=(const MeetingInPages&) = delete;

    Result<void> publish(std::string_view key, std::string_view value, Instant /*deadline*/) override {
        MUSTER_CHECK(key.size() < sizeof(Slot::key) && value.size() <= sizeof(Slot::value), key.size(), value.size());
        for (std::size_t at = std::hash<std::string_view>()(key), tried = 0; tried < slot_count_; ++at, ++tried) {
            Slot& slot = slots_[at % slot_count_];
            int empty = 0;
            if (!slot.state.compare_exchange_strong(empty, 1)) continue;
            std::memcpy(slot.key, key.data(), key.size());
            std::memcpy(slot.value, value.data(), value.size());
            slot.value_size = value.size();
            slot.state = 2;
            return {};
        }
        return Error{Errc::limit_exceeded, "the meeting is full"};
    }

    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override {
        std::vector<std::string> found;
        for (const auto& key : keys) {
            const Slot* slot = find(key);
            for (Duration pause = std::chrono::milliseconds(1); slot == nullptr; slot = find(key), pause *= 2) {
                if (auto stands = wait.check_alive(); !stands) return stands.error();
                if (std::chrono::steady_clock::now() >= wait.deadline)
                    return Error{Errc::timed_out, key + " was not published"};
                // Processes share no condition here. A thousand of them that look often would keep two cores busy.
                std::this_thread::sleep_for(std::min<Duration>(pause, std::chrono::milliseconds(50)));
            }
            found.emplace_back(slot->value, slot->value_size);
        }
        return found;
    }

  private:
    struct Slot {
        std::atomic<int> state;  ///< 0: empty, 1: being written, 2: there.
        std::size_t value_size;
        char key[64];
        char value[952];
    };
    /// A slot that is being written counts as another key's: it is looked at again.
    [[nodiscard]] const Slot* find(const std::string& key) const {
        for (std::size_t at = std::hash<std::string_view>()(key);; ++at) {
            const Slot& slot = slots_[at % slot_count_];
            const int state = slot.state;
            if (state == 0) return nullptr;
            if (state == 2 && key == slot.key) return &slot;
        }
    }

    const std::size_t slot_count_;
    Slot* slots_ = nullptr;
};

/// TCP connections that this process has.
inline int tcp_connections() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        tcp_info info{};
        socklen_t length = sizeof info;
        const int fd = std::stoi(entry.path().filename());
        count += ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED;
    }
    return count;
}

}  // namespace muster::test
