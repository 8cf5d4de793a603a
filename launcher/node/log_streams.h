// Answers GET /logs on the port of the node's round: the lines of its workers' log files (agent/output/log_wire.h).
//
// The files are read on a thread of each viewer, so that a slow disk delays neither the store nor the agent. A viewer
// that reads slowly slows nobody: its thread waits with its place in the files, and buffers no more than one chunk.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/net/event_loop.h"

namespace muster::launcher {

class LogStreams {
  public:
    static constexpr std::size_t viewers_max = 16;
    static constexpr std::size_t bytes_per_second_max = 10'000'000;  ///< Of one viewer.

    /// Shared with the threads of its viewers.
    struct Round {
        std::string folder;
        std::vector<std::string> kept;  ///< Final once it is over.
        std::atomic<bool> is_over = false;
    };

    /// `loop` outlives it and every connection that it has answered. A question that names another job is refused.
    LogStreams(rendezvous::EventLoop& loop, std::string job) : loop_(loop), job_(std::move(job)) {}

    /// `folder` has the files of this node's workers. Empty: there are none. From any thread.
    void begin_round(std::string folder);
    /// Viewers of this round get what there is, and their streams end. The workers of the log files `kept` run on, and
    /// what they write then, also the rest of a line, is for viewers of the next round. From any thread.
    void end_round(std::vector<std::string> kept);
    /// On the loop's thread. Null: the target is another one, the asker proves nothing, or there are too many.
    std::unique_ptr<rendezvous::HttpStream> begin(const rendezvous::HttpRequest& request,
                                                  rendezvous::Connection& connection);
    /// The asker may read what the workers write, and where they are, and means this job.
    [[nodiscard]] bool may_read(const rendezvous::HttpRequest& request, const rendezvous::Connection& asker) const;
    /// To a request that got null from `begin` in the same turn.
    [[nodiscard]] std::optional<rendezvous::HttpPage> answer(const rendezvous::HttpRequest&) const { return refused_; }
    /// Serve also who proves nothing (--insecure). Before the first `begin`.
    void serve_all() { serves_all_ = true; }

  private:
    class Viewer;

    /// Why it gets nothing. Nothing: it may read.
    [[nodiscard]] std::optional<rendezvous::HttpPage> objection(const rendezvous::HttpRequest& request,
                                                                const rendezvous::Connection& asker) const;
    /// Why there is no stream for it. Nothing: there is.
    std::optional<rendezvous::HttpPage> refusal(const rendezvous::HttpRequest& request,
                                                const rendezvous::Connection& connection);
    rendezvous::EventLoop& loop_;
    const std::string job_;
    std::mutex mutex_;
    std::shared_ptr<Round> round_ = std::make_shared<Round>();  ///< Under the mutex.
    bool serves_all_ = false;
    rendezvous::HttpPage refused_;  ///< The last refusal.
    /// Grows with each thread. A place is free again when its thread has ended: disks that hang cannot fill the node.
    std::shared_ptr<std::atomic<std::size_t>> threads_ = std::make_shared<std::atomic<std::size_t>>(0);
    /// Of all viewers, each with its index.
    std::shared_ptr<std::atomic<std::size_t>> open_files_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace muster::launcher
