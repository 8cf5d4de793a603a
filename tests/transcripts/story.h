// A story about one daemon and its agents, told in lines: what happens on the left side of a transcript, what the
// daemon does about it on the right. The real Server runs; the agents are puppets that say what the line says, and ping
// every fifth of the lease while they are connected and not silenced.
//
//   terms min=1 max=2 spares=1 restarts=1 last_call=30s lease=5s lost=60s fixed   before the first join
//         window=10s node_failures=2 of_rounds=4 restart_early   --max-restarts 1/10s, --node-failures 2/4, ...
//         quiet quiet_always embedded           what the daemon is (StartHold; part of the node that hosts it)
//         kept                                  its records are kept
//         beats=7 fan_out=2                     heartbeats a second of a job, children of a node in the peers' tree
//   join n0 [slots=2] [role=x] [rank=3] [hosts] [entry=a.py] [arguments=--lr=1] [version=1.0] [last_round=9] [sick=hot]
//           [expects=n[0-3]]                    the hosts that a scheduler gave to the job
//           [host=n1] [pid=1]                   those of its agent, where they are not its own
//                                               Join; Hello first on a new connection
//   report n0 [stopped=2]                       RoundReport
//   rejoin n0                                   report, join
//   fail n0 [code=1|signal=9|comm|lost] [early] [full] [ago=20ms] [error=1ms]   WorkersFailed
//   seen n0 [overdue|waiting|final] [round=0] [step=3] [first=1] [base=0] [gpu=97] WorkersSeen
//   succeed n0 | leave n0 | ack n0
//   drain n0 node=n1 | notify n0                a command that n0 passes on
//   close n0                                    the connection breaks
//   reconnect n0                                another connection, before the first one has ended
//   resume n0 [done] [round=9] [of=2] [group=1] [restarts=3] [grace=30s]
//                                               a new connection, Hello and Resume; of a round that it was never in
//   died n0                                     the guardian speaks; with the connection broken before: kill n0
//   lose n0                                     it never saw its Assigned
//   silence n0 | speak n0                       stops and goes on pinging
//   twin n0                                     another agent with n0's incarnation and connection number joins
//   advance 500ms                               time passes; the daemon is called at its deadlines
//   stall 3s                                    time passes; neither the daemon nor the agents' words are served
//   hold | free                                 the records cannot be kept; they can again
//   restart [30s]                               the daemon starts anew, after so long, from its records or knowing
//   nothing; all
//                                               connections break
//   show round | show job | show events          events: those since the last time, with what the log does not have
//   show notes                                   of the last round, as n1 got them
//   show failures                                as the job's counters have them
//   # a comment
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/rounds/server.h"
#include "tests/transcripts/job_replay.h"

namespace muster::test {

class Story {
  public:
    explicit Story(std::string_view terms = "");

    /// Runs the lines; returns what the daemon did, one line each, indented, under the line that caused it.
    std::string tell(std::string_view lines);
    /// The same without the lines themselves, for dialogues.
    std::string answers(std::string_view lines);

  private:
    struct Puppet {
        std::string name;
        NodeIdentity node;
        std::uint32_t connection_number = 0;
        rendezvous::ConnectionId connection = 0;
        bool silent = false;
        bool proven = false;  ///< It shows the job's key.
        native::Join join;
        native::Assigned assigned;
        std::string version;
        Instant next_ping;
    };
    using Words = std::map<std::string, std::string>;  ///< "slots" -> "2"; a bare word maps to ""

    void run(std::string_view line);
    void set_terms(const Words& words);
    bool run_agent(const std::string& verb, Puppet& puppet, const Words& words);
    void join(Puppet& puppet, const Words& words);
    void fail(Puppet& puppet, const Words& words);
    void seen(Puppet& agent, const Words& words);
    void fault(Puppet& puppet, const Words& words);
    void twin(Puppet& puppet);
    void connect(Puppet& puppet);
    void close(Puppet& puppet);
    void died(Puppet& puppet);
    void advance(Duration duration);
    void restart(Duration down);
    void show(const std::string& what);
    Puppet& puppet(const std::string& name);
    void hear(Puppet& puppet, const native::Message& message);
    void step(const rendezvous::ServerEvent& event);
    /// The status says what a reader of the events alone knows.
    void compare_with_events();
    void print(const rendezvous::ServerStep& step);
    [[nodiscard]] std::string name_of(rendezvous::ConnectionId connection) const;
    void line(const std::string& text) { out_ += "    " + text + "\n"; }

    native::JobTerms terms_;
    rendezvous::ServerConfig config_;
    Instant now_ = Instant(1000s);
    std::unique_ptr<rendezvous::Server> server_;
    std::map<std::string, std::string> kept_;  ///< records
    std::map<std::string, Puppet> puppets_;
    std::map<rendezvous::ConnectionId, std::string> names_;
    rendezvous::ConnectionId next_connection_ = 1;
    std::string out_;
    std::vector<Event> events_;  ///< Since `show events`.
    std::map<std::string, JobReplay> replays_;
    bool is_held_ = false;  ///< The server waits for its disk.
};

/// True when what a story answered has these words in it.
inline bool says(const std::string& answers, std::string_view words) {
    return answers.find(words) != std::string::npos;
}

/// One line for a message of the daemon, e.g. "Assigned round 0: group rank 1 of 2, ranks 2.. of 4, ...".
std::string describe(const native::Message& message);

}  // namespace muster::test
