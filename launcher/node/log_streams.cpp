#include "launcher/node/log_streams.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "agent/output/log_files.h"
#include "agent/output/log_merge.h"
#include "agent/output/log_wire.h"
#include "launcher/commands/log_query.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "rendezvous/net/connection.h"
#include "rendezvous/secret/control_key.h"

namespace muster::launcher {

namespace {

using agent::LogMerge;
using rendezvous::Connection;
using rendezvous::EventLoop;
using rendezvous::HttpPage;
using rendezvous::HttpRequest;

constexpr std::size_t chunk_bytes = 128 << 10;
/// A viewer that has more than this unread gets nothing further.
constexpr std::size_t unsent_bytes_max = 512 << 10;
constexpr Duration poll_interval = 100ms;
constexpr Duration unsent_look = 20ms;
constexpr Duration alive_interval = 1s;
constexpr int polls_between_searches = 5;  ///< For files of workers that have just been started.

/// What a viewer's thread and the loop share. The thread may outlive everything else when a disk hangs.
class Channel : public std::enable_shared_from_this<Channel> {
  public:
    Channel(EventLoop& loop, Connection& connection) : loop_(&loop), connection_(&connection) {}

    /// The connection has ended; on the loop's thread.
    void end() {
        const std::lock_guard lock(mutex_);
        loop_ = nullptr;
        changed_.notify_all();
    }
    /// False: the viewer has gone. Returns when it has read most of it, and not sooner than the pace allows.
    bool send(std::string bytes) {
        const auto pace = std::chrono::nanoseconds(bytes.size() * 1'000'000'000 / LogStreams::bytes_per_second_max);
        const auto earliest = std::chrono::steady_clock::now() + pace;
        if (!give(std::move(bytes), false)) return false;
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return loop_ == nullptr || has_looked_; });
            if (loop_ == nullptr) return false;
            const bool is_behind = unsent_ > unsent_bytes_max;
            const auto until = is_behind ? std::chrono::steady_clock::now() + unsent_look : earliest;
            if (changed_.wait_until(lock, until, [this] { return loop_ == nullptr; })) return false;
            if (!is_behind) return true;
            lock.unlock();
            if (!give({}, false)) return false;
        }
    }
    /// The last bytes.
    void finish(std::string bytes) { give(std::move(bytes), true); }
    /// False: the viewer has gone.
    bool wait(Duration time) {
        std::unique_lock lock(mutex_);
        return !changed_.wait_for(lock, time, [this] { return loop_ == nullptr; });
    }

  private:
    bool give(std::string bytes, bool is_last) {
        const std::lock_guard lock(mutex_);
        if (loop_ == nullptr) return false;
        has_looked_ = false;
        loop_->post([self = shared_from_this(), bytes = std::move(bytes), is_last] { self->take(bytes, is_last); });
        return true;
    }
    /// On the loop's thread, which alone ends the connection.
    void take(const std::string& bytes, bool is_last) {
        {
            const std::lock_guard lock(mutex_);
            if (loop_ == nullptr) return;
        }
        if (!bytes.empty()) connection_->send(bytes);
        if (is_last) connection_->finish("all lines are sent");
        const std::lock_guard lock(mutex_);
        unsent_ = connection_->unsent_bytes();
        has_looked_ = true;
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    EventLoop* loop_;  ///< Null: the connection has ended.
    Connection* const connection_;
    std::size_t unsent_ = 0;
    bool has_looked_ = false;
};

/// Gives all lines of the files by now to the viewer. False: it has gone.
Result<bool> send_lines(LogMerge& files, agent::LineWriter& writer, Channel& viewer, bool is_last) {
    std::string bytes;
    const auto sink = [&](std::size_t file, const agent::LogLine& line) {
        writer.append(bytes, file, files.name(file), line);
        return bytes.size() < chunk_bytes || viewer.send(std::exchange(bytes, {}));
    };
    const auto reached = agent::LogReached{agent::log_time_ns() - LogMerge::write_lag_ns};
    const auto read = is_last ? files.read(sink) : files.read(sink, reached.time_ns);
    if (!read || !*read) return read;
    if (is_last) files.finish(sink);
    return viewer.send(bytes + agent::to_wire(reached));
}

/// A viewer takes an agent for lost from which nothing comes (NodeLogs::silence_max), so it hears also while lines are
/// read that it does not want.
std::function<void()> sign_of_life(Channel& viewer) {
    return [&viewer, said_at = std::chrono::steady_clock::now()]() mutable {
        const auto now = std::chrono::steady_clock::now();
        if (now - said_at < alive_interval) return;
        said_at = now;
        viewer.send(agent::to_wire(agent::LogAlive{}));
    };
}

/// One viewer's part of the files that all viewers of the node may have open: the launcher needs descriptors for its
/// next workers, and the store for their connections.
class OpenFiles {
  public:
    explicit OpenFiles(std::atomic<std::size_t>& of_all) : of_all_(of_all) {}
    OpenFiles& operator=(OpenFiles&&) = delete;
    ~OpenFiles() { keep(0); }

    Result<void> take(const std::string& name) {
        if (name.size() > name_bytes_max || std::ranges::any_of(name, is_control))
            return Error{Errc::invalid_argument,
                         "log files whose names are too long or have control characters are left out"};
        // A file and its index; three quarters of the descriptors are for others.
        const auto most = connections_allowed() / 8;
        if (count_ < agent::LogWireReader::files_max && of_all_.fetch_add(1) < most) {
            ++count_;
            return {};
        }
        if (count_ < agent::LogWireReader::files_max) --of_all_;
        return Error{Errc::limit_exceeded,
                     cat("it opens no more than ", std::min(most, agent::LogWireReader::files_max),
                         " log files for its viewers, and leaves the others out; end other viewers, raise the limit of "
                         "open files (ulimit -n), or run muster logs DIR there")};
    }
    /// So many are open.
    void keep(std::size_t count) {
        of_all_ -= count_ - count;
        count_ = count;
    }

  private:
    static constexpr std::size_t name_bytes_max = 2048;
    static bool is_control(char letter) { return static_cast<unsigned char>(letter) < ' ' || letter == 0x7f; }

    std::atomic<std::size_t>& of_all_;
    std::size_t count_ = 0;
};

void serve(agent::LogSelection selection, bool follows, Channel& viewer, std::atomic<std::size_t>& open_files,
           const LogStreams::Round& round) {
    OpenFiles opened(open_files);
    selection.may_open = [&](const std::string& name) { return opened.take(name); };
    selection.trouble = [&](const std::string& sentence) { viewer.send(agent::to_wire(agent::LogTrouble{sentence})); };
    selection.passed_over = sign_of_life(viewer);
    LogMerge files(selection);
    agent::LineWriter writer;
    const auto fail = [&](const std::string& why) {
        viewer.finish(agent::to_wire(agent::LogTrouble{why}) + agent::to_wire(agent::LogEnd{}));
    };
    if (selection.folders.empty())
        return fail(
            "its workers' output goes to no files; start the job with --log-dir DIR and -r 3 or -t 3 on each node, so "
            "that there are lines to show");
    for (int turn = 0;; ++turn) {
        // Before the files are read, so that nothing is written behind the last look.
        const bool is_over = round.is_over;
        if (is_over) files.run_on(round.kept);
        if (is_over || turn % polls_between_searches == 0) {
            if (auto found = files.find(); !found) return fail(found.error().context);
            opened.keep(files.file_count());
        }
        const auto goes_on = send_lines(files, writer, viewer, is_over || !follows);
        if (!goes_on) return fail(goes_on.error().context);
        if (!*goes_on) return;
        if (is_over) return viewer.finish(agent::to_wire(agent::LogRoundOver{}) + agent::to_wire(agent::LogEnd{}));
        if (!follows) return viewer.finish(agent::to_wire(agent::LogEnd{}));
        if (!viewer.wait(poll_interval)) return;
    }
}

HttpPage no(unsigned status, std::string why) {
    return {.status = status, .body = cat(why, '\n')};
}

}  // namespace

class LogStreams::Viewer final : public rendezvous::HttpStream {
  public:
    explicit Viewer(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
    ~Viewer() override { channel_->end(); }

  private:
    const std::shared_ptr<Channel> channel_;
};

void LogStreams::begin_round(std::string folder) {
    const std::lock_guard lock(mutex_);
    round_ = std::make_shared<Round>();
    round_->folder = std::move(folder);
}

void LogStreams::end_round(std::vector<std::string> kept) {
    const std::lock_guard lock(mutex_);
    round_->kept = std::move(kept);
    round_->is_over = true;
}

std::optional<HttpPage> LogStreams::objection(const HttpRequest& request, const Connection& asker) const {
    if (!serves_all_ && !asker.is_own() && !asker.key_identity().starts_with(rendezvous::logs_label))
        return no(403, "The lines are for who has the job's key: set MUSTER_SECRET_FILE or MUSTER_KEY.");
    // A page of a browser could take places of viewers.
    if (!request.fetch_site.empty()) return no(403, "Use muster logs.");
    return std::nullopt;
}

bool LogStreams::may_read(const HttpRequest& request, const Connection& asker) const {
    return !objection(request, asker) &&
           percent_decoded(rendezvous::query_value(request.target, "job").value_or("")) == job_;
}

std::optional<HttpPage> LogStreams::refusal(const HttpRequest& request, const Connection& connection) {
    if (auto why = objection(request, connection)) return why;
    if (!request.target.starts_with(logs_path)) return no(404, "There are /logs and, of this job, /stacks.");
    if (threads_->load() < viewers_max) return std::nullopt;
    return no(503, cat(viewers_max, " viewers read this node's log files, which is the limit. End one of them."));
}

std::unique_ptr<rendezvous::HttpStream> LogStreams::begin(const HttpRequest& request, Connection& connection) {
    auto refused = refusal(request, connection);
    const auto read = refused ? std::nullopt : read_log_target(request.target);
    if (!refused && !read) refused = no(400, "This agent does not know all of these options.");
    // The port of a node that is gone may be another job's by now.
    if (read && !read->job.empty() && read->job != job_) refused = no(404, "This port is an agent's of another job.");
    if (refused) {
        refused_ = *std::move(refused);
        return nullptr;
    }
    const auto& asked = *read;
    agent::LogSelection selection{.ranks = asked.ranks,
                                  .out = asked.out,
                                  .err = asked.err,
                                  .round = asked.round,
                                  .resume = asked.resume,
                                  .last = asked.last};
    std::shared_ptr<Round> round;
    {
        const std::lock_guard lock(mutex_);
        round = round_;
    }
    if (!round->folder.empty()) selection.folders.push_back(round->folder);
    selection.untimed = asked.untimed;
    if (asked.since) selection.since_ns = agent::log_time_ns() - std::chrono::nanoseconds(*asked.since).count();
    auto channel = std::make_shared<Channel>(loop_, connection);
    ++*threads_;
    auto thread = start_thread(
        "muster-logs", [channel, selection, follows = asked.follow, count = threads_, files = open_files_, round] {
            serve(selection, follows, *channel, *files, *round);
            --*count;
        });
    if (!thread) {
        --*threads_;
        refused_ = no(503, thread.error().context);
        return nullptr;
    }
    // Nobody waits for it: it may read from a disk that hangs. It ends when the channel does.
    thread->detach();
    // The clock goes out at once: the viewer measures how long this answer takes.
    connection.send(rendezvous::http_stream_head("text/plain; charset=utf-8"));
    connection.send(agent::to_wire(agent::LogClock{agent::log_time_ns()}));
    return std::make_unique<Viewer>(std::move(channel));
}

}  // namespace muster::launcher
