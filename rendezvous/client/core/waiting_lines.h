// What a person is told while an agent waits for a round: who is missing, how long still, what to check. Pure.
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
    /// How far the last attempt came that led to no muster.
    enum class Reached {
        nothing,   ///< no connection
        somebody,  ///< a connection, whatever became of it
        store,     ///< PyTorch's store: torchrun's rendezvous, most likely
    };

    /// `is_etcd`: the daemons of the job meet at the endpoint, and none of them listens there. `option`: the one that
    /// names the endpoint's host, --rdzv-endpoint or --master-addr.
    WaitingLines(const Endpoint& endpoint, std::string job, bool is_etcd = false,
                 std::string option = "--rdzv-endpoint")
        : endpoint_(endpoint), job_(std::move(job)), is_etcd_(is_etcd), option_(std::move(option)) {}

    /// A wait begins. Nothing is said in its first second: most waits are shorter.
    void begin(Instant now);
    void end() { began_.reset(); }
    /// The daemon has spoken. A connection alone does not count: anything may listen there.
    void answered(Instant now);
    /// The daemon is not, or no longer, to be had; `what` completes "HOST:PORT did not answer (...)" or, when somebody
    /// was reached, "HOST:PORT: ...".
    void no_answer(Reached reached, std::string what, Instant now);
    void gathering(const native::Gathering& news, Instant now);
    /// Said at once: its program does not run, and the person may have meant another job.
    void parked(const native::Parked& parked, Instant now);
    /// The daemon cannot keep its state for the reason `why`, and tells no decision; empty: it can again.
    void stalled(const std::string& why);

    /// The line that is due now, if any: on change, at most once a second; with advice when nothing has moved for
    /// 10 s; and every 30 s without a change. `gives_up_at`: when the wait ends if nothing changes.
    std::optional<std::string> line(Instant now, Instant gives_up_at);
    [[nodiscard]] Instant deadline() const;

    /// For the last message: how far the wait had come.
    [[nodiscard]] std::string state() const;
    /// What to look at where nothing answers: ". Check that ..."; empty where somebody does.
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
    Instant stands_since_;  ///< since when it has been as it is: no answer, or the latest news
    Reached reached_ = Reached::nothing;
    std::string tried_;
    std::optional<native::Gathering> gathering_;
    Instant gathering_at_;
    std::optional<native::Parked> parked_;
    std::string stalled_;  ///< Why the daemon cannot keep its state.
    bool changed_ = false;
    Instant next_line_ = no_deadline;  ///< not before
    Instant repeat_at_ = no_deadline;  ///< said again then, although nothing has changed
};

}  // namespace muster::rendezvous
