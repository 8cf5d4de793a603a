// Ranks for tests: threads of this process, or processes of their own that can be killed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <condition_variable>

#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// A store in this process's memory, for ranks that are threads.
class MeetingInMemory final : public runtime::MeetingPlace {
  public:
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override;
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override;

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string, std::less<>> values_;
};

/// A store of files in `folder`, for ranks that are processes.
class MeetingInFolder final : public runtime::MeetingPlace {
  public:
    explicit MeetingInFolder(std::string folder) : folder_(std::move(folder)) {}
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override;
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override;

  private:
    std::string folder_;
};

/// Another store, which calls `count` as often as a store's client calls the kernel: before it has told and after, and
/// when it has heard.
class CountedPlace final : public runtime::MeetingPlace {
  public:
    CountedPlace(std::shared_ptr<runtime::MeetingPlace> place, std::function<void()> count)
        : place_(std::move(place)), count_(std::move(count)) {}
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override;
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys,
                                             const runtime::MeetingWait& wait) override;

  private:
    const std::shared_ptr<runtime::MeetingPlace> place_;
    const std::function<void()> count_;
};

/// Runs `body(terms)` for each rank in a thread, and waits for all. Catch2's assertions are not thread-safe: let the
/// body return what is to be looked at.
void run_as_threads(int size, const std::function<void(const runtime::GroupTerms&)>& body);

/// How a rank's process ended, as waitpid() tells it.
struct RankEnd {
    bool exited = false;
    int code = 0;  ///< exit code, or the signal
};

/// Ranks in processes of their own, forked from this one (which must have one thread). `body` gives the exit code.
/// Those that still live are killed with the object.
class RankProcesses {
  public:
    RankProcesses(int size, const std::function<int(const runtime::GroupTerms&)>& body);
    ~RankProcesses();
    RankProcesses(const RankProcesses&) = delete;
    RankProcesses& operator=(const RankProcesses&) = delete;

    [[nodiscard]] int pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
    /// Has it? Does not reap it.
    [[nodiscard]] bool ended(int rank) const;
    /// Waits until all have ended; a rank that outlives `limit` is killed, which its end shows.
    std::vector<RankEnd> join(std::chrono::seconds limit = std::chrono::seconds(60));
    /// A file that a rank can write for the test to read: its path.
    [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

  private:
    std::string folder_;
    std::vector<int> pids_;
};

}  // namespace muster::test
