// Where the daemon's state lives. Asynchronous from the first day: a step's actions are released when its records are
// persisted, steps that wait together may share a transaction, and pings never wait for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

/// Runs `work` on the daemon's own thread, in order, soon. May be called from any thread.
using PostToDaemon = std::function<void(std::function<void()> work)>;

class StateStore {
  public:
    virtual ~StateStore() = default;

    /// Keeps `records` in order and then calls `persisted(sequence)`, at once or later, from the daemon's own loop.
    /// Sequences grow by one; a call stands for all before it too. Where that fails it does not call: what waits behind
    /// it is refused once there is too much of it (NetLimits::unpersisted_steps_max).
    virtual void write(std::uint64_t sequence, std::vector<Record> records) = 0;

    std::function<void(std::uint64_t sequence)> persisted;
    /// A write has failed for the reason `why` and is tried again until it succeeds, which `persisted` tells. From the
    /// daemon's own loop.
    std::function<void(std::string why)> failing;

    // ---- where several daemons share the state, and one leads ----

    /// This daemon begins as one that stands by, and leads when it is told so.
    [[nodiscard]] virtual bool is_shared() const { return false; }
    /// Whether it may speak as the leader at this moment. Asked before each word to an agent: a leader that was stopped
    /// for longer than its lease must not answer when it goes on.
    [[nodiscard]] virtual bool may_speak() const { return true; }
    std::function<void(KeptState kept)> leads;          ///< from now on, and goes on from this
    std::function<void(std::string leader)> stands_by;  ///< from now on; `leader` is where agents go, empty: unknown
};

/// Keeps nothing: a restarted daemon is taught anew by its agents.
class MemoryState final : public StateStore {
  public:
    void write(std::uint64_t sequence, std::vector<Record> records) override;
};

}  // namespace muster::rendezvous
