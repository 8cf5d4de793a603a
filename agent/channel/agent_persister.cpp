#include "agent/channel/agent_persister.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "rendezvous/base/call_later.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

/// Beyond the limit, in which it ends by itself unless the file system hangs.
constexpr Duration slack = 4s;
constexpr std::size_t line_bytes_max = 4096;
constexpr int overtaken = 3;  // its exit code: a later round or another job has the directory

std::string first_line(int output) {
    std::string text(line_bytes_max, '\0');
    const auto size = ::read(output, text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text.substr(0, text.find('\n'));
}

}  // namespace

/// True when nothing stands in the way of another one for this directory.
bool AgentPersister::makes_way(const std::string& directory, const std::string& copies, When when) {
    for (auto& run : runs_) {
        if (run.directory != directory) continue;
        // At the end the newest copies count; between rounds one at a time is enough.
        if (when == When::between_rounds) return false;
        if (run.copies == copies && when == When::at_the_end) {
            run.when = when;
            return false;
        }
        run.replaced = true;
        ::kill(run.pid, SIGKILL);
    }
    return true;
}

void AgentPersister::start(const std::string& directory, const std::vector<const MemoryHandover*>& copies, Round round,
                           When when) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit_).count();
    std::vector<std::string> words = {side_program("muster-persist"), directory, cat(round), cat(seconds)};
    if (when == When::after_success) words.insert(words.begin() + 1, "--whole");
    std::vector<int> inherited;
    std::string named;
    std::int64_t step = -1;
    for (const auto* copy : copies) {
        step = std::max(step, copy->step);
        words.push_back(cat(copy->memory.get(), ':', copy->size_bytes));
        named += cat(words.back(), ':', copy->step, ' ');
        inherited.push_back(copy->memory.get());
    }
    if (!makes_way(directory, named, when)) return;
    auto child = start_side_process(std::move(words), inherited);
    if (!child)
        return fail(when, step,
                    cat("the copies in memory cannot be written to ", directory, ": ", child.error().context));
    auto& run = runs_.emplace_back(loop_, std::move(*child));
    run.directory = directory;
    run.copies = std::move(named);
    run.step = step;
    run.when = when;
    watch(std::prev(runs_.end()));
}

void AgentPersister::watch_end(Place run) {
    const std::weak_ptr<bool> alive = run->alive;
    call_when_readable(run->ended, [self = shared_from_this(), run, alive] {
        if (!alive.expired() && !self->closed_) self->over(run);
    });
}

void AgentPersister::watch(Place run) {
    const std::weak_ptr<bool> alive = run->alive;
    watch_end(run);
    call_after(run->late, limit_ + slack, [self = shared_from_this(), run, alive] {
        if (alive.expired() || self->closed_) return;
        // Nobody waits for what does not even end of this: it hangs in a call to its file system.
        ::kill(run->pid, SIGKILL);
        self->fail(run->when, run->step,
                   cat("muster-persist for ", run->directory, " did not finish within ", muster::describe(self->limit_),
                       "; its file system may hang"));
        self->runs_.erase(run);
        self->settle();
    });
}

void AgentPersister::over(Place run) {
    int status = 0;
    // A wake-up may be meant for an earlier descriptor of the same number (as in process/side_runs.cpp).
    if (::waitpid(run->pid, &status, WNOHANG) == 0) return watch_end(run);
    if (!run->replaced) tell(*run, status);
    runs_.erase(run);
    settle();
}

void AgentPersister::tell(const Run& run, int status) {
    const auto line = first_line(run.output.get());
    const bool exited = WIFEXITED(status);
    const bool fine = exited && WEXITSTATUS(status) == 0;
    const bool expected = exited && WEXITSTATUS(status) == overtaken && run.when == When::between_rounds;
    if (fine) {
        if (line.empty() || !is_news(line) || !on_event) return;
        on_event({.kind = EventKind::checkpoint_persisted,
                  .text = line,
                  .facts = {.checkpoint_step = run.step},
                  .place = EventPlace::notice_and_stream});
    } else if (expected) {
        log(LogLevel::info, line);
    } else {
        fail(run.when, run.step,
             !line.empty()
                 ? line
                 : cat("muster-persist for ", run.directory, " failed without a message (",
                       exited ? cat("exit code ", WEXITSTATUS(status)) : cat("signal ", WTERMSIG(status)), ")"));
    }
}

/// At the end it is for the report. Between rounds the agents still have the copies.
void AgentPersister::fail(When when, std::int64_t step, const std::string& why) {
    if (when == When::between_rounds) return log(is_news(why) ? LogLevel::warning : LogLevel::info, why);
    unsaved(cat("step ", step, " is lost, because it was only in memory: ", why));
}

void AgentPersister::unsaved(const std::string& what) {
    unsaved_ += cat(unsaved_.empty() ? "" : "; ", what);
}

void AgentPersister::hurry() {
    if (!done_) return;
    for (const auto& run : runs_) {
        if (run.when == When::between_rounds || run.replaced) continue;
        unsaved(cat("step ", run.step, " is still being written to ", run.directory,
                    ": a signal ended the wait for muster-persist (pid ", run.pid, "), which continues"));
    }
    end();
}

void AgentPersister::end() {
    if (done_) asio::post(loop_, [done = std::exchange(done_, {}), unsaved = unsaved_] { done(unsaved); });
}

void AgentPersister::start(const std::map<std::uint32_t, std::vector<MemoryHandover>>& snapshots, Round round,
                           When when) {
    // Without time for it the disk's newest step is looked at all the same: success means that it has the last one.
    if (limit_ <= Duration::zero() && when != When::after_success) return;
    std::map<std::string, std::vector<const MemoryHandover*>> by_directory;
    for (const auto& [local_rank, handovers] : snapshots) {
        for (const auto& gift : handovers) {
            if (!gift.directory.empty()) by_directory[gift.directory].push_back(&gift);
        }
    }
    for (const auto& [directory, copies] : by_directory) start(directory, copies, round, when);
}

void AgentPersister::when_done(std::function<void(std::string)> done) {
    done_ = std::move(done);
    settle();
}

}  // namespace muster::agent
