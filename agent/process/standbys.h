// Keeps standby processes (guardian_standby.cpp) for the workers of the next round. standby_table.h decides.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/process/guardian_wire.h"
#include "agent/process/standby_table.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/wire/native/messages.h"

namespace boost::asio {
class io_context;
}

namespace muster::agent {

struct StandbyPlan {
    std::uint32_t count_max = 0;  ///< 0: none.
    bool by_memory = false;       ///< Start another one only if twice the memory that one needs is free.
    std::string imports;          ///< As standby_command() takes them.
    /// From the start of a round's workers to that of the first standby process: the workers import too, and their
    /// first steps are not to be disturbed.
    Duration start_after = 5s;
    /// Then its imports get normal priority. With idle priority alone they would never end where all CPUs are busy.
    Duration idle_import_max = 10s;
    std::function<std::size_t()> free_bytes = [] { return available_memory_bytes(); };
};

class Standbys {
  public:
    /// What it needs of its owner. Called from the loop.
    struct Owner {
        std::function<std::uint64_t()> next_id;
        /// Spawns a standby process, with these streams.
        std::function<void(std::uint64_t id, const WorkerCommand&, std::vector<FileDescriptor> streams)> spawn;
        std::function<void(std::uint64_t id)> end;  ///< 0: all.
        std::function<void(std::string)> notice;    ///< A line for the user.
        /// How many there are now, and their memory: when that changes, and at least each 30 s.
        std::function<void(native::StandbysSeen)> seen;
    };
    Standbys(boost::asio::io_context& context, StandbyPlan plan, Owner owner);

    /// The standby process that becomes this worker. 0: it is started normally.
    std::uint64_t choose(const WorkerCommand& command);
    /// No worker runs on this node, and nothing is disturbed: standby processes for these commands are started at once.
    /// `when_ready` as in ProcessHost; a minute passes at most.
    void expect(const std::vector<WorkerCommand>& commands, std::function<void()> when_ready);
    /// All workers of a round were ordered: reports in one line which of them start normally though standby processes
    /// were expected, and begins to replace what was used.
    void round_begun();
    /// The round's processes are to be killed. None is started until the next round; those that are there stay.
    void rest();
    /// True if the message is about a standby process.
    bool handle(const guardian_wire::Message& message);
    /// A chosen standby process did not become the worker. The guardian has started it normally.
    void refused(std::uint32_t local_rank);
    /// Ends all. None is started until the next round.
    void end();
    /// The guardian is gone, and they with it. round_begun() begins to replace them, on a spare too.
    void forget();

  private:
    struct Facts {
        std::int32_t pid = 0;
        std::uint32_t local_rank = 0;
        FileDescriptor stderr_file;
        Instant hurried_at = no_deadline;  ///< When its imports get normal priority.
    };
    void arm(Duration wait);
    void look();
    void start_next(Instant now);
    void hurry(Instant now);
    void tell();
    [[nodiscard]] bool has_memory() const { return !plan_.by_memory || plan_.free_bytes() >= 2 * measured_bytes_; }
    void became_ready(const guardian_wire::StandbyReady& ready);
    void ended(std::uint64_t id, const WorkerEnd& how);

    boost::asio::steady_timer timer_;
    StandbyPlan plan_;
    Owner owner_;
    StandbyTable table_;
    std::map<std::uint64_t, Facts> facts_;
    bool has_workers_ = false;
    std::function<void()> when_ready_;
    Instant ready_by_{};
    std::vector<std::string> normal_starts_;  ///< Local ranks of this round.
    std::string why_not_;                     ///< Of the first of them.
    std::size_t measured_bytes_;              ///< Memory of one.
    Life life_;
    std::uint32_t count_told_ = 0;
};

}  // namespace muster::agent
