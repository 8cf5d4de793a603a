#include "agent/channel/agent_persister.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <utility>

#include "agent/process/side_process.h"
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

class AgentPersister::Body : public std::enable_shared_from_this<Body> {
  public:
    Body(asio::io_context& loop, Duration limit, AgentPersister& owner) : loop_(loop), limit_(limit), owner_(&owner) {}

    void start(const std::string& directory, const std::vector<const MemoryHandover*>& copies, Round round, When when);
    void settle();
    /// What still runs goes on by itself.
    void hurry();

    asio::io_context& loop_;
    const Duration limit_;
    AgentPersister* owner_;  // null: gone
    std::function<void(std::string)> done_;

  private:
    struct Run {
        Run(asio::io_context& loop, SideProcess started)
            : pid(started.pid), ended(loop, started.ended.release()), output(std::move(started.output)), late(loop) {}
        pid_t pid;
        asio::posix::stream_descriptor ended;
        FileDescriptor output;
        asio::steady_timer late;
        std::string directory, copies;
        std::int64_t step = -1;  // the newest of the copies
        When when = When::between_rounds;
        bool replaced = false;  // by another one, and killed: its end says nothing
        /// Goes with it: of two handlers that are ready at once the second one finds out.
        std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    };
    using Place = std::list<Run>::iterator;

    void end();
    bool makes_way(const std::string& directory, const std::string& copies, When when);
    void watch(Place run);
    void watch_end(Place run);
    void over(Place run);
    void tell(const Run& run, int status);
    void unsaved(const std::string& what);
    void fail(When when, std::int64_t step, const std::string& why);
    /// Between rounds and at the end it may be the same.
    bool is_news(const std::string& line) { return std::exchange(told_, line) != line; }

    std::list<Run> runs_;
    std::string told_;
    std::string unsaved_;  // of those at the end
};

/// True when nothing stands in the way of another one for this directory.
bool AgentPersister::Body::makes_way(const std::string& directory, const std::string& copies, When when) {
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

void AgentPersister::Body::start(const std::string& directory, const std::vector<const MemoryHandover*>& copies,
                                 Round round, When when) {
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

void AgentPersister::Body::watch_end(Place run) {
    const std::weak_ptr<bool> alive = run->alive;
    run->ended.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this(), run, alive](boost::system::error_code failure) {
                              if (failure || alive.expired() || self->owner_ == nullptr) return;
                              self->over(run);
                          });
}

void AgentPersister::Body::watch(Place run) {
    const std::weak_ptr<bool> alive = run->alive;
    watch_end(run);
    run->late.expires_after(limit_ + slack);
    run->late.async_wait([self = shared_from_this(), run, alive](boost::system::error_code failure) {
        if (failure || alive.expired() || self->owner_ == nullptr) return;
        // Nobody waits for what does not even end of this: it hangs in a call to its file system.
        ::kill(run->pid, SIGKILL);
        self->fail(run->when, run->step,
                   cat("muster-persist for ", run->directory, " did not finish within ", muster::describe(self->limit_),
                       "; its file system may hang"));
        self->runs_.erase(run);
        self->settle();
    });
}

void AgentPersister::Body::over(Place run) {
    int status = 0;
    // A wake-up may be meant for an earlier descriptor of the same number (as in process/side_runs.cpp).
    if (::waitpid(run->pid, &status, WNOHANG) == 0) return watch_end(run);
    if (!run->replaced) tell(*run, status);
    runs_.erase(run);
    settle();
}

void AgentPersister::Body::tell(const Run& run, int status) {
    const auto line = first_line(run.output.get());
    const bool exited = WIFEXITED(status);
    const bool fine = exited && WEXITSTATUS(status) == 0;
    const bool expected = exited && WEXITSTATUS(status) == overtaken && run.when == When::between_rounds;
    if (fine) {
        if (!line.empty() && is_news(line) && owner_->on_line) owner_->on_line(line);
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
void AgentPersister::Body::fail(When when, std::int64_t step, const std::string& why) {
    if (when == When::between_rounds) return log(is_news(why) ? LogLevel::warning : LogLevel::info, why);
    unsaved(cat("step ", step, " is lost, because it was only in memory: ", why));
}

void AgentPersister::Body::unsaved(const std::string& what) {
    unsaved_ += cat(unsaved_.empty() ? "" : "; ", what);
}

void AgentPersister::Body::hurry() {
    if (!done_) return;
    for (const auto& run : runs_) {
        if (run.when == When::between_rounds || run.replaced) continue;
        unsaved(cat("step ", run.step, " is still being written to ", run.directory,
                    ": a signal ended the wait for muster-persist (pid ", run.pid, "), which continues"));
    }
    end();
}

void AgentPersister::Body::settle() {
    if (runs_.empty()) end();
}

void AgentPersister::Body::end() {
    if (done_) asio::post(loop_, [done = std::exchange(done_, {}), unsaved = unsaved_] { done(unsaved); });
}

AgentPersister::AgentPersister(asio::io_context& loop, Duration limit)
    : body_(std::make_shared<Body>(loop, limit, *this)) {}

AgentPersister::~AgentPersister() {
    body_->owner_ = nullptr;
}

void AgentPersister::start(const std::map<std::uint32_t, std::vector<MemoryHandover>>& snapshots, Round round,
                           When when) {
    // Without time for it the disk's newest step is looked at all the same: success means that it has the last one.
    if (body_->limit_ <= Duration::zero() && when != When::after_success) return;
    std::map<std::string, std::vector<const MemoryHandover*>> by_directory;
    for (const auto& [local_rank, handovers] : snapshots) {
        for (const auto& gift : handovers) {
            if (!gift.directory.empty()) by_directory[gift.directory].push_back(&gift);
        }
    }
    for (const auto& [directory, copies] : by_directory) body_->start(directory, copies, round, when);
}

void AgentPersister::when_done(std::function<void(std::string)> done) {
    body_->done_ = std::move(done);
    body_->settle();
}

void AgentPersister::hurry() {
    body_->hurry();
}

}  // namespace muster::agent
