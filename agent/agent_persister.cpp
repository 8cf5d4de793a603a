#include "agent/agent_persister.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <filesystem>
#include <list>
#include <system_error>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

/// Beyond the limit, in which it ends by itself unless the file system hangs.
constexpr Duration slack = 4s;
constexpr std::size_t line_bytes_max = 4096;
constexpr int overtaken = 3;  // its exit code: a later round or another job has the directory

/// Beside our own program, where an installation and a build have it; else PATH says.
std::string program() {
    std::error_code failure;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", failure);
    auto beside = failure ? std::filesystem::path() : own.parent_path() / "muster-persist";
    return !failure && std::filesystem::exists(beside, failure) ? beside.string() : "muster-persist";
}

/// What posix_spawn wants to know, freed with it.
struct SpawnTerms {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    SpawnTerms() {
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
        sigset_t none, all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&attributes, &none);
        ::posix_spawnattr_setsigdefault(&attributes, &all);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    ~SpawnTerms() {
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
    }
    SpawnTerms(const SpawnTerms&) = delete;
    SpawnTerms& operator=(const SpawnTerms&) = delete;
};

struct Child {
    pid_t pid = -1;
    FileDescriptor ended;   ///< a pidfd
    FileDescriptor output;  ///< its stdout
};

/// `inherited` keep their numbers in the child.
Result<Child> spawn(std::vector<std::string> words, const std::vector<int>& inherited) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return error_from_errno(errno, "make a pipe for muster-persist");
    Child child;
    child.output = FileDescriptor(ends[0]);
    const FileDescriptor childs_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    SpawnTerms terms;
    ::posix_spawn_file_actions_addopen(&terms.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&terms.actions, childs_end.get(), STDOUT_FILENO);
    // Onto itself: that takes the close-on-exec flag away, in the child alone.
    for (const int memory : inherited) ::posix_spawn_file_actions_adddup2(&terms.actions, memory, memory);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (const int failure = ::posix_spawnp(&child.pid, words[0].c_str(), &terms.actions, &terms.attributes,
                                           arguments.data(), environ)) {
        return error_from_errno(failure, cat("start ", words[0]));
    }
    child.ended = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
    if (child.ended.valid()) return child;
    auto refused = error_from_errno(errno, "watch muster-persist");
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    return refused;
}

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

    void start(const std::string& directory, const std::vector<const Gift*>& copies, Round round, When when);
    void settle();

    asio::io_context& loop_;
    const Duration limit_;
    AgentPersister* owner_;  // null: gone
    std::function<void()> done_;

  private:
    struct Run {
        Run(asio::io_context& loop, Child started)
            : pid(started.pid), ended(loop, started.ended.release()), output(std::move(started.output)), late(loop) {}
        pid_t pid;
        asio::posix::stream_descriptor ended;
        FileDescriptor output;
        asio::steady_timer late;
        std::string directory, copies;
        When when = When::between_rounds;
        /// Goes with it: of two handlers that are ready at once the second one finds out.
        std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    };
    using Place = std::list<Run>::iterator;

    bool makes_way(const std::string& directory, const std::string& copies, When when);
    void watch(Place run);
    void over(Place run);
    void tell(const Run& run, int status);
    /// Between rounds and at the end it may be the same.
    bool is_news(const std::string& line) { return std::exchange(told_, line) != line; }

    std::list<Run> runs_;
    std::string told_;
};

/// True when nothing stands in the way of another one for this directory.
bool AgentPersister::Body::makes_way(const std::string& directory, const std::string& copies, When when) {
    for (auto& run : runs_) {
        if (run.directory != directory) continue;
        if (run.copies == copies) run.when = when;
        // At the end the newest copies count; between rounds one at a time is enough.
        if (run.copies == copies || when == When::between_rounds) return false;
        ::kill(run.pid, SIGKILL);
    }
    return true;
}

void AgentPersister::Body::start(const std::string& directory, const std::vector<const Gift*>& copies, Round round,
                                 When when) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit_).count();
    std::vector<std::string> words = {program(), directory, cat(round), cat(seconds)};
    std::vector<int> inherited;
    std::string named;
    for (const auto* copy : copies) {
        words.push_back(cat(copy->memory.get(), ':', copy->size_bytes));
        named += cat(words.back(), ':', copy->step, ' ');
        inherited.push_back(copy->memory.get());
    }
    if (!makes_way(directory, named, when)) return;
    auto child = spawn(std::move(words), inherited);
    if (!child) {
        log(LogLevel::warning, "the copies in memory cannot be brought to ", directory, ": ", child.error().context);
        return;
    }
    auto& run = runs_.emplace_back(loop_, std::move(*child));
    run.directory = directory;
    run.copies = std::move(named);
    run.when = when;
    watch(std::prev(runs_.end()));
}

void AgentPersister::Body::watch(Place run) {
    const std::weak_ptr<bool> alive = run->alive;
    run->ended.async_wait(asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this(), run, alive](boost::system::error_code failure) {
                              if (failure || alive.expired() || self->owner_ == nullptr) return;
                              self->over(run);
                          });
    run->late.expires_after(limit_ + slack);
    run->late.async_wait([self = shared_from_this(), run, alive](boost::system::error_code failure) {
        if (failure || alive.expired() || self->owner_ == nullptr) return;
        // Nobody waits for what does not even end of this: it hangs in a call to its file system.
        ::kill(run->pid, SIGKILL);
        log(LogLevel::warning, "muster-persist for ", run->directory, " did not end in ",
            muster::describe(self->limit_), "; its step is not on the disk");
        self->runs_.erase(run);
        self->settle();
    });
}

void AgentPersister::Body::over(Place run) {
    int status = 0;
    while (::waitpid(run->pid, &status, 0) < 0 && errno == EINTR) continue;
    tell(*run, status);
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
    } else if (!line.empty()) {
        log(is_news(line) ? LogLevel::warning : LogLevel::info, line);
    } else {
        log(LogLevel::warning, "muster-persist for ", run.directory, " ended without a word (",
            exited ? cat("exit code ", WEXITSTATUS(status)) : cat("signal ", WTERMSIG(status)),
            "); its step is not on the disk");
    }
}

void AgentPersister::Body::settle() {
    if (!runs_.empty() || !done_) return;
    asio::post(loop_, std::exchange(done_, {}));
}

AgentPersister::AgentPersister(asio::io_context& loop, Duration limit)
    : body_(std::make_shared<Body>(loop, limit, *this)) {}

AgentPersister::~AgentPersister() {
    body_->owner_ = nullptr;
}

void AgentPersister::start(const std::map<std::uint32_t, std::vector<Gift>>& snapshots, Round round, When when) {
    if (body_->limit_ <= Duration::zero()) return;
    std::map<std::string, std::vector<const Gift*>> by_directory;
    for (const auto& [local_rank, gifts] : snapshots) {
        for (const auto& gift : gifts) {
            if (!gift.directory.empty()) by_directory[gift.directory].push_back(&gift);
        }
    }
    for (const auto& [directory, copies] : by_directory) body_->start(directory, copies, round, when);
}

void AgentPersister::when_done(std::function<void()> done) {
    body_->done_ = std::move(done);
    body_->settle();
}

void AgentPersister::hurry() {
    if (body_->done_) asio::post(body_->loop_, std::exchange(body_->done_, {}));
}

}  // namespace muster::agent
