// Which standby process fits which worker, and when another one is to be started. Pure.
//
// A standby process starts with the final environment and placement of one local rank, and there is at most one for
// each. It becomes the worker of any local rank that differs in LOCAL_RANK alone, its own one first. With
// --virtual-local-rank, ${local_rank} among the arguments, --numa-binding or unequal numbers of threads more differs:
// what an import sees of these cannot be changed later. One is started at a time, so that the imports take at most one
// core from the training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/supervision/process_host.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

/// A standby process that has not become ready within this time counts as hung: it is ended at the next restart, and
/// those of the count are started meanwhile.
inline constexpr Duration standby_import_max = 60s;

class StandbyTable {
  public:
    /// At most `count` at a time, for the lowest local ranks that have none.
    explicit StandbyTable(std::uint32_t count) : count_(count) {}

    struct Choice {
        std::uint64_t id = 0;                  ///< The standby process that becomes the worker. 0: none.
        std::vector<std::uint64_t> discarded;  ///< Those that are of no use any more: to be ended.
        std::string why_not;                   ///< Set if id is 0 and one was expected.
    };
    /// A worker is to be started now with this command, which is remembered for the next standby process.
    Choice take(const WorkerCommand& command, Instant now);

    /// A worker may be started with such a command in a round to come.
    void expect(const WorkerCommand& command);

    /// The command of the worker whose standby process is to be started now, if any: one is missing, none is importing.
    [[nodiscard]] std::optional<WorkerCommand> next(Instant now) const;
    /// One that does not count as hung.
    [[nodiscard]] bool is_importing(Instant now) const;
    void started(std::uint32_t local_rank, std::uint64_t id, Instant now);
    /// `of_own_slot`: its imports have read its local rank, so it serves no other one.
    void ready(std::uint64_t id, bool of_own_slot);
    /// False: no standby process has this id. A failed one is tried again only after the next restart of any worker.
    bool ended(std::uint64_t id, std::string why);
    /// The guardian is gone, and they with it. Others are due for the same workers.
    void lose();
    /// The standby processes are gone, or will be; none is started until the next take().
    void clear() { slots_.clear(); }

  private:
    enum class State { none, importing, ready, failed };
    struct Slot {
        State state = State::none;  ///< Of the standby process that was started for it.
        std::uint64_t id = 0;
        bool of_own_slot = false;
        Instant since = {};
        std::string why;        ///< Why the last one was of no use, until another one is started.
        WorkerCommand standby;  ///< What it was started for.
        WorkerCommand worker;   ///< The last worker, or the one that is expected.
        bool is_next = false;   ///< True once there is such a worker.
    };
    void discard(Slot& slot, std::string why, Choice& choice);
    void make_room(Instant now, Choice& choice);
    void take_from_another(const WorkerCommand& command, Choice& choice);

    std::uint32_t count_;
    std::map<std::uint32_t, Slot> slots_;
};

/// Of those that a worker's environment has, the one that differs between local ranks in any case. A standby process
/// tells whether its imports have read it (standby_program.cpp).
inline constexpr std::string_view variable_of_a_slot = "LOCAL_RANK";

/// `command` as its standby process is to see it: without the variables that each round sets anew, sorted.
std::vector<std::string> lasting_environment(const WorkerCommand& command);

}  // namespace muster::agent
