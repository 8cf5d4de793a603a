#include "agent/channel/checkpoint_progress.h"

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/checkpoint/files/identity.h"
#include "worker_runtime/checkpoint/format/names.h"

namespace muster::agent {

std::optional<NewestCheckpoint> newest_checkpoint(const std::string& directory) {
    std::optional<runtime::CheckpointName> newest;
    std::error_code failure;
    for (std::filesystem::directory_iterator at(directory, failure), end; !failure && at != end;
         at.increment(failure)) {
        const auto name = runtime::parse_checkpoint_name(at->path().filename().string());
        if (name && (!newest || *newest < *name)) newest = name;
    }
    if (!newest) return std::nullopt;
    return NewestCheckpoint{.step = newest->step, .folder = runtime::to_string(*newest)};
}

std::optional<NewestCheckpoint> newest_local_save(const std::string& local, const std::string& directory,
                                                  std::uint32_t worker_count) {
    const auto folder = runtime::directory_word(directory, runtime::identity_of(directory));
    std::map<std::int64_t, std::uint32_t> files;  // by step
    std::error_code failure;
    for (std::filesystem::directory_iterator at(cat(local, '/', folder), failure), end; !failure && at != end;
         at.increment(failure)) {
        if (const auto name = runtime::parse_local_name(at->path().filename().string())) ++files[name->step];
    }
    for (auto newest = files.rbegin(); newest != files.rend(); ++newest) {
        if (newest->second >= worker_count) return NewestCheckpoint{.step = newest->first, .folder = folder};
    }
    return std::nullopt;
}

struct CheckpointProgress::Answer {
    std::mutex mutex;
    std::condition_variable changed;
    bool there = false;
    std::optional<NewestCheckpoint> newest;
};

CheckpointProgress::CheckpointProgress(Duration limit, FindNewest look)
    : limit_(limit), find_newest_(std::move(look)) {}

bool CheckpointProgress::start(const std::string& directory) {
    under_way_ = std::make_shared<Answer>();
    has_timed_out_ = false;
    auto thread = start_thread("muster-look", [answer = under_way_, look = find_newest_, directory] {
        auto found = look(directory);
        const std::lock_guard lock(answer->mutex);
        answer->newest = std::move(found);
        answer->there = true;
        answer->changed.notify_all();
    });
    if (thread) {
        thread->detach();
        return true;
    }
    log(LogLevel::warning, thread.error().context);
    under_way_.reset();
    return false;
}

bool CheckpointProgress::has_ended() {
    if (!under_way_) return true;
    const auto answer = under_way_;
    const std::lock_guard lock(answer->mutex);
    if (!answer->there) return false;
    last_ = answer->newest;
    under_way_.reset();
    return true;
}

std::optional<NewestCheckpoint> CheckpointProgress::newest(const std::string& directory) {
    if (!under_way_ && !start(directory)) return last_;
    {
        const auto answer = under_way_;
        std::unique_lock lock(answer->mutex);
        answer->changed.wait_for(lock, has_timed_out_ ? Duration::zero() : limit_, [&] { return answer->there; });
    }
    has_timed_out_ = !has_ended();
    if (has_timed_out_)
        log(LogLevel::warning, directory, ": its file system does not answer; the newest checkpoint there is unknown");
    return last_;
}

}  // namespace muster::agent
