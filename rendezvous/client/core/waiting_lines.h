// The progress line of an agent that waits for a round: missing nodes, remaining time, what to check. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class WaitingLines {
  public:
    /// How far the last failed attempt came.
    enum class Reached {
        nothing,   ///< no connection
        a_peer,    ///< a connection
        store,     ///< PyTorch's store, probably torchrun's rendezvous
        follower,  ///< a daemon that has told why it is not the leader
    };

    /// `is_etcd`: the endpoint is etcd's; the daemons listen elsewhere. `option` names the endpoint's host:
    /// --rdzv-endpoint or --master-addr.
    WaitingLines(const Endpoint& endpoint, std::string job, bool is_etcd = false,
                 std::string option = "--rdzv-endpoint")
        : endpoint_(endpoint), job_(std::move(job)), is_etcd_(is_etcd), option_(std::move(option)) {}

    /// Starts a wait. No line in the first second, because most waits are shorter.
    void begin(Instant now);
    void end() { began_.reset(); }
    /// The daemon has sent a message. A connection alone does not count: another program may listen there.
    void answered(Instant now);
    /// The daemon is unreachable; `what` completes "HOST:PORT did not answer (...)" or, after a connection,
    /// "HOST:PORT: ...".
    void no_answer(Reached reached, std::string what, Instant now);
    void gathering(const native::Gathering& progress, Instant now);
    /// Due at once: the program does not run, and the user may have meant another job.
    void parked(const native::Parked& parked, Instant now);
    /// The daemon cannot write its state because of `why`, and holds back its decisions; empty: it can again.
    void stalled(const std::string& why);

    /// The line that is due now, if any: on change, at most once a second; with advice after 10 s without progress;
    /// every 30 s without a change. `gives_up_at` is the deadline of the wait.
    std::optional<std::string> line(Instant now, Instant gives_up_at);
    [[nodiscard]] Instant deadline() const;

    /// How far the wait has come, for the last message.
    [[nodiscard]] std::string state() const;
    /// What to check when nothing answers: ". Check that ..."; else empty.
    [[nodiscard]] std::string hint() const { return answering_ ? std::string() : advice(); }

  private:
    [[nodiscard]] std::string text(Instant now, Instant gives_up_at) const;
    [[nodiscard]] std::string advice() const;
    [[nodiscard]] Instant advice_at() const;

    Endpoint endpoint_;
    std::string job_;
    bool is_etcd_ = false;
    std::string option_;
    std::optional<Instant> began_;
    bool answering_ = false;
    Instant stands_since_;  ///< time of the last progress
    Reached reached_ = Reached::nothing;
    std::string tried_;
    std::optional<native::Gathering> gathering_;
    Instant gathering_at_;
    std::optional<native::Parked> parked_;
    std::string stalled_;  ///< why the daemon cannot write its state
    bool changed_ = false;
    Instant next_line_ = no_deadline;  ///< no line before
    Instant repeat_at_ = no_deadline;  ///< repeat the line then, even without a change
};

}  // namespace muster::rendezvous
