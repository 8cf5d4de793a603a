// Asks the scheduler why it has sent a signal. In Slurm the first host of the step asks scontrol, where there is one (a
// thousand hosts at once would be a load for slurmctld); the others look at the clock, where Slurm has told the end.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "agent/process/side_runs.h"
#include "launcher/config/environment.h"

namespace muster::launcher {

class SignalReason {
  public:
    /// Both outlive it. Nothing is done before ask().
    SignalReason(boost::asio::io_context& loop, const Environment& environment);

    /// One line for the person at the launcher, for each ask() that has an answer which is not the last one's.
    std::function<void(const std::string&)> on_reason;

    /// A signal has come.
    void ask();
    /// Calls `go` when no answer is awaited any more, at most 6 s after the last ask(); at once where none is.
    void when_known(std::function<void()> go);
    /// The last answer; empty: none.
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    void ask_slurm(int tries);
    void ask_again(int tries);
    void tell(std::string text);

    const Environment& environment_;
    agent::SideRuns runs_;
    boost::asio::steady_timer pause_;
    bool is_awaited_ = false;
    std::string text_;
    std::function<void()> go_;
};

}  // namespace muster::launcher
