// The site's own checks of this node, one after the other: those of a folder, in order of their names, then
// --health-check. Slurm's HealthCheckProgram and LBNL NHC fit as they are.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/doctor/health_verdict.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

struct HealthCheckConfig {
    std::string command;  ///< For /bin/sh -c. Empty: none.
    std::string folder;   ///< Every executable in it is a check. Empty: none.
    /// True for a folder that is on no disk that may hang. While it is missing, no program is started to read it; it
    /// may come later.
    bool folder_is_usual = false;
    Duration limit = 30s;  ///< Of all checks together: the other nodes may wait for them.
    std::string job;       ///< MUSTER_JOB of the check.
    /// What a test before the job found of this node. It counts as the finding of each check, so nothing is run.
    /// Empty: nothing.
    std::string known_fault = {};
    [[nodiscard]] bool is_wanted() const { return !command.empty() || !folder.empty() || !known_fault.empty(); }
};

class HealthCheck {
  public:
    /// `loop` outlives it.
    HealthCheck(boost::asio::io_context& loop, HealthCheckConfig config)
        : runs_(loop, SideRuns::End::by_sigterm), config_(std::move(config)) {}

    /// Calls `done` once: at once where there is no check, else from the loop. The first check that finds the node sick
    /// decides, and no other one runs. `last_round` is MUSTER_ROUND; nothing before the first round. Another call takes
    /// the place of the one before. A node is well again when the check that found it sick passes or is there no more,
    /// whatever another one that cannot run leaves open. While a file of the folder is refused, no check counts as
    /// gone: the refused one may be it.
    void run(std::optional<Round> last_round, std::function<void(HealthVerdict)> done);
    /// `done` is not called any more. A check that runs is killed with everything that it started.
    void drop();

  private:
    struct Program {
        std::string name;                ///< For messages.
        std::vector<std::string> words;  ///< The program and its arguments. Empty: the file of the folder.
    };
    [[nodiscard]] Duration time_left() const {
        return std::chrono::duration_cast<Duration>(deadline_ - std::chrono::steady_clock::now());
    }
    /// `has_all`: the checks of the folder are all known.
    void begin(bool has_all);
    /// True if the folder was read whole, and nothing in it was refused.
    bool note_folder(std::string_view output);
    void run_next();
    void note_unknown(const std::string& why);

    SideRuns runs_;
    HealthCheckConfig config_;
    std::deque<Program> waiting_;
    std::chrono::steady_clock::time_point deadline_;
    std::vector<std::string> variables_;
    HealthVerdict verdict_;
    std::string sick_by_;        ///< The check that found the node sick last. Empty: it is not.
    bool passes_again_ = false;  ///< That one, in this run; or it is there no more.
    std::function<void(HealthVerdict)> done_;
};

}  // namespace muster::agent
