// The disk of a daemon that keeps its state: transactions that take their time, and that are whole or not there when
// the daemon is killed. What sqlite/sqlite_state.cpp is in the real one.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/rounds/job_record.h"
#include "tests/simulation/host/event_queue.h"
#include "tests/simulation/host/random.h"
#include "tests/simulation/sabotage.h"

namespace muster::simulation {

class Disk {
  public:
    using Persisted = std::function<void(std::uint64_t sequence)>;

    /// `complete`: this is not the first daemon of this state.
    Disk(EventQueue& events, Random random, Duration slowest, bool complete);

    /// `persisted` is called later, with the number of the last step that is in the transaction.
    void write(std::uint64_t sequence, std::vector<rendezvous::Record> records, Persisted persisted);
    /// The transaction under way is on the disk, or it is not; what waited is lost.
    void writer_killed(Plant plant);
    /// What the next daemon finds.
    [[nodiscard]] std::vector<rendezvous::Record> records(Plant plant) const;

  private:
    struct Step {
        std::uint64_t sequence = 0;
        std::vector<rendezvous::Record> records;
        Persisted persisted;
    };

    void begin();
    void commit();

    EventQueue& events_;
    Random random_;
    Duration slowest_;
    std::deque<Step> waiting_;
    std::deque<Step> writing_;
    std::uint64_t transaction_ = 0;
    std::map<std::string, std::string> content_;
    std::map<std::string, std::string> some_time_ago_;  ///< for a plant: before the last transactions
};

}  // namespace muster::simulation
