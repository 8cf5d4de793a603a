// Asks the scheduler why it sent a signal. In Slurm only the step's first host runs scontrol, to spare slurmctld. The
// other hosts compare the clock with SLURM_JOB_END_TIME.
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
    /// Both arguments must outlive this object. Does nothing before ask().
    SignalReason(boost::asio::io_context& loop, const Environment& environment);

    /// Receives one line for the user when ask() has a new answer.
    std::function<void(const std::string&)> on_reason;

    /// Call it when a signal arrived.
    void ask();
    /// Calls `go` when no answer is pending, at most 13 s after the last ask().
    void when_known(std::function<void()> go);
    /// The last answer. Empty: none.
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    void ask_slurm(int number);
    void ask_again(int number);
    void tell(std::string text);

    const Environment& environment_;
    agent::SideRuns runs_;
    boost::asio::steady_timer pause_;
    bool is_awaited_ = false;
    std::string text_;
    std::function<void()> go_;
};

}  // namespace muster::launcher
