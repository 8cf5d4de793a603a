// Runs our programs that print something and end (muster-stacks, muster-gpus) beside the agent, without blocking it. At
// a deadline the program is killed and its missing output left out.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/call_later.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

/// A program that prints as much is ended.
inline constexpr std::size_t side_output_bytes_max = 64 * 1024;

class SideRuns {
  public:
    /// How a program ends at its deadline. SIGTERM: it kills others first.
    enum class End { by_sigkill, by_sigterm };
    /// `loop` outlives it.
    explicit SideRuns(boost::asio::io_context& loop, End end = End::by_sigkill) : loop_(loop), end_(end) {}
    ~SideRuns();
    SideRuns& operator=(SideRuns&&) = delete;

    /// What it has said on stdout when it ended or at the limit, or a line "note ..." that says why it could not be
    /// started. Comes from the loop, never from within start().
    using Done = std::function<void(std::string)>;
    /// `input` is what the program reads from stdin (start_side_process).
    void start(std::vector<std::string> words, Duration limit, Done done, std::string_view input = {});
    /// Nobody waits any more: those that run are ended, and no Done is called.
    void drop_all();

  private:
    class Run;
    boost::asio::io_context& loop_;
    End end_;
    std::vector<std::weak_ptr<Run>> runs_;  // a run keeps itself until its process has ended
    Life life_;                             // of those that wait to hear that theirs could not be started
};

}  // namespace muster::agent
