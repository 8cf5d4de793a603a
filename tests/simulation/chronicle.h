// What is written down about one run: the tally, the first broken invariant, and the story for --trace.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "rendezvous/base/text/text.h"
#include "tests/simulation/happening.h"
#include "tests/simulation/host/event_queue.h"

namespace muster::simulation {

/// A broken invariant: which one, and what was seen.
struct Violation {
    std::string invariant;  ///< "S8", "L1", "budget" ...
    std::string what;
    Moment when{};
};

/// One for each run; every part of the world writes into it.
class Chronicle {
  public:
    enum class Mode { quiet, trace };
    Chronicle(const EventQueue& events, Mode mode) : events_(events), mode_(mode) {}

    void count(Happening happening) { ++tally_[static_cast<std::size_t>(happening)]; }
    [[nodiscard]] const Tally& tally() const { return tally_; }

    /// One line of the story, in domain words; costs nothing unless traced.
    template <class... Parts>
    void tell(const Parts&... parts) {
        if (mode_ == Mode::trace) print(cat(parts...));
    }
    /// The first one counts; what follows a broken invariant proves nothing.
    void violated(std::string invariant, std::string what) {
        tell("VIOLATED ", invariant, ": ", what);
        if (!violation_) violation_ = Violation{std::move(invariant), std::move(what), events_.now()};
    }
    [[nodiscard]] const std::optional<Violation>& violation() const { return violation_; }
    [[nodiscard]] bool tracing() const { return mode_ == Mode::trace; }

  private:
    void print(const std::string& line) const {
        const long long us = events_.now().count() / 1000;
        std::printf("%4lld.%06lld  %s\n", us / 1'000'000, us % 1'000'000, line.c_str());
    }

    const EventQueue& events_;
    Mode mode_;
    Tally tally_{};
    std::optional<Violation> violation_;
};

}  // namespace muster::simulation
