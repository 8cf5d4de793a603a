#include "tests/support/ranks.h"
#include "tests/support/end_with_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace muster::test {

Result<void> MeetingInMemory::publish(std::string_view key, std::string_view value, Instant /*deadline*/) {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
    return {};
}

Result<std::vector<std::string>> MeetingInMemory::collect(const std::vector<std::string>& keys,
                                                          const runtime::MeetingWait& wait) {
    std::unique_lock lock(mutex_);
    std::vector<std::string> found;
    for (const auto& key : keys) {
        const auto published = [&] { return values_.contains(key); };
        while (!changed_.wait_until(lock, wait.next_check(std::chrono::steady_clock::now()), published)) {
            if (auto stands = wait.check_alive(); !stands) return stands.error();
            if (std::chrono::steady_clock::now() >= wait.deadline)
                return Error{Errc::timed_out, key + " was not published"};
        }
        found.push_back(values_[key]);
    }
    return found;
}

Result<void> CountedPlace::publish(std::string_view key, std::string_view value, Instant deadline) {
    count_();
    auto published = place_->publish(key, value, deadline);
    count_();
    return published;
}

Result<std::vector<std::string>> CountedPlace::collect(const std::vector<std::string>& keys,
                                                       const runtime::MeetingWait& wait) {
    auto found = place_->collect(keys, wait);
    count_();
    return found;
}

namespace {

std::string as_file_name(std::string_view key) {
    std::string name(key);
    for (auto& character : name) {
        if (character == '/') character = '+';
    }
    return name;
}

}  // namespace

Result<void> MeetingInFolder::publish(std::string_view key, std::string_view value, Instant /*deadline*/) {
    const std::string path = folder_ + "/" + as_file_name(key);
    // Several may publish one key at a time: who was first, and who is last, is up to chance, but no value is mixed.
    static std::atomic<int> count = 0;
    const std::string fresh = path + ".new" + std::to_string(::getpid()) + "." + std::to_string(++count);
    std::ofstream(fresh, std::ios::binary) << value;
    std::filesystem::rename(fresh, path);
    return {};
}

Result<std::vector<std::string>> MeetingInFolder::collect(const std::vector<std::string>& keys,
                                                          const runtime::MeetingWait& wait) {
    std::vector<std::string> found;
    for (const auto& key : keys) {
        const std::string path = folder_ + "/" + as_file_name(key);
        while (!std::filesystem::exists(path)) {
            if (auto stands = wait.check_alive(); !stands) return stands.error();
            if (std::chrono::steady_clock::now() >= wait.deadline) {
                return Error{Errc::timed_out, key + " was not published"};
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // folders have no notification that is simpler
        }
        std::ifstream file(path, std::ios::binary);
        found.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return found;
}

void run_as_threads(int size, const std::function<void(const runtime::GroupTerms&)>& body) {
    const auto place = std::make_shared<MeetingInMemory>();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] { body({.rank = rank, .size = size, .id = "world", .place = place}); });
    }
    for (auto& thread : threads) thread.join();
}

RankProcesses::RankProcesses(int size, const std::function<int(const runtime::GroupTerms&)>& body) {
    std::string pattern = (std::filesystem::temp_directory_path() / "muster-ranks-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::fflush(nullptr);
    for (int rank = 0; rank < size; ++rank) {
        const pid_t pid = test::fork_with_test();
        if (pid == 0) {
            const auto place = std::make_shared<MeetingInFolder>(folder_);
            ::_exit(body({.rank = rank, .size = size, .id = "world", .place = place}));
        }
        pids_.push_back(pid);
    }
}

RankProcesses::~RankProcesses() {
    for (const auto pid : pids_) {
        if (pid > 0) ::kill(pid, SIGKILL);
    }
    join();
    std::filesystem::remove_all(folder_);
}

bool RankProcesses::ended(int rank) const {
    siginfo_t facts{};
    return ::waitid(P_PID, static_cast<id_t>(pid(rank)), &facts, WEXITED | WNOHANG | WNOWAIT) == 0 && facts.si_pid != 0;
}

std::vector<RankEnd> RankProcesses::join(std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<RankEnd> ends(pids_.size());
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
        if (pids_[rank] <= 0) continue;
        int status = 0;
        while (::waitpid(pids_[rank], &status, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() >= deadline) ::kill(pids_[rank], SIGKILL);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ends[rank] = {WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)};
        pids_[rank] = -1;
    }
    return ends;
}

}  // namespace muster::test
