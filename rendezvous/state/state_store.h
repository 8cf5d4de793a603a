// The interface of the daemon's state. Asynchronous: the actions of a step are released when its records are persisted;
// steps that wait together may share a transaction; pings never wait for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"

namespace muster::rendezvous {

/// Posts `work` to the daemon's thread, in order. Thread-safe.
using PostToDaemon = std::function<void(std::function<void()> work)>;

class StateStore {
  public:
    virtual ~StateStore() = default;

    /// Writes `records` in order, then calls `persisted(sequence)` from the daemon's loop, at once or later. Sequences
    /// grow by one; a call confirms all earlier ones too. No call after a failure: the queue behind it is refused when
    /// it exceeds NetLimits::unpersisted_bytes_max.
    virtual void write(std::uint64_t sequence, std::vector<Record> records) = 0;

    std::function<void(std::uint64_t sequence)> persisted;
    /// A write failed with `why` and is retried until it succeeds, which `persisted` or `leads` reports. A follower
    /// that cannot become the leader for this reason reports it, too. From the daemon's loop.
    std::function<void(std::string why)> failing;

    /// Receives the log lines about the state's server.
    std::function<void(const std::string& line)> remarks;

    // ---- state that several daemons share, one of them the leader; or one that cannot be opened yet ----

    /// True: this daemon starts as a follower and becomes the leader with `leads`.
    [[nodiscard]] virtual bool starts_as_follower() const { return false; }
    /// True if this daemon is the leader now. Checked before each message to an agent, because a leader that was
    /// suspended for longer than its lease must not answer when it resumes.
    [[nodiscard]] virtual bool may_speak() const { return true; }
    /// This daemon became the leader; `kept` is the state that it continues from.
    std::function<void(KeptState kept)> leads;
    /// This daemon is a follower; `leader` is the leader's address, empty: unknown.
    std::function<void(std::string leader)> stands_by;
};

/// Keeps nothing: after a restart of the daemon, its agents send the state again.
class MemoryState final : public StateStore {
  public:
    void write(std::uint64_t sequence, std::vector<Record> records) override;
};

}  // namespace muster::rendezvous
