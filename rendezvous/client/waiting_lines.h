// What a person is told while an agent waits for a round: who is missing, how long still, what to check. Pure.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class WaitingLines {
  public:
    explicit WaitingLines(const Endpoint& endpoint) : endpoint_(endpoint) {}

    /// A wait that may last until `gives_up_at` begins. Nothing is said in its first second: most waits are shorter.
    void begin(Instant now, Instant gives_up_at);
    void end() { began_.reset(); }
    void connected();
    void disconnected(std::string tried, Instant now);
    void gathering(const native::Gathering& news, Instant now);
    void parked(const native::Parked& parked);

    /// The line that is due now, if any: on change, at most once a second, and every 30 s without one.
    std::optional<std::string> line(Instant now);
    [[nodiscard]] Instant deadline() const;

    /// For the last message: how far the wait had come.
    [[nodiscard]] std::string state() const;

  private:
    [[nodiscard]] std::string text(Instant now) const;

    Endpoint endpoint_;
    std::optional<Instant> began_;
    Instant gives_up_at_ = no_deadline;
    bool connected_ = false;
    Instant disconnected_since_;
    std::string tried_;
    std::optional<native::Gathering> gathering_;
    Instant gathering_at_;
    std::optional<native::Parked> parked_;
    bool changed_ = false;
    Instant next_line_ = no_deadline;  ///< not before
    Instant repeat_at_ = no_deadline;  ///< said again then, although nothing has changed
};

}  // namespace muster::rendezvous
