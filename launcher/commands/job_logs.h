// The log files of all nodes of a job as one stream: the daemon says where the agents are, and the lines come from
// them.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/log_order.h"
#include "launcher/commands/log_view.h"
#include "launcher/commands/node_logs.h"
#include "rendezvous/connect/resolver.h"

namespace muster::launcher {

/// Where the daemon says it: /api/v1/jobs/JOB/agents.
std::string agents_page(const std::string& job);

/// The answer there.
struct JobAgents {
    struct Agent {
        std::string incarnation;
        std::string host;
        std::string name;  ///< "gpu07 (pid 4711)"
        Endpoint place;
    };
    std::optional<std::uint64_t> round;     ///< Nothing: there was none yet.
    std::set<std::string> waiting_nodes{};  ///< Nodes that are in no round, by incarnation.
    bool is_over = false;
    std::vector<Agent> agents;
};
Result<JobAgents> read_job_agents(const std::string& json);

class JobLogs {
  public:
    /// Takes whole lines; false where nobody wants more.
    using Sink = LogShow::Sink;
    /// A sentence about one of the nodes.
    using Trouble = std::function<void(const std::string& sentence)>;
    /// More are not read at once.
    static constexpr std::size_t nodes_max = 2'000;

    /// `ways` as in NodeLogs::Request.
    JobLogs(LogRequest request, std::vector<Way> ways, Trouble trouble);
    ~JobLogs();

    /// Connects to the agents that are not connected, and goes on where their lines were left. A port of an agent
    /// serves one round, so that an agent is met again in the next one.
    void meet(const JobAgents& job);
    /// Gives `sink` the lines that may be shown, and waits for more for at most `turn`. False once it has refused.
    bool read(const Sink& sink, Duration turn);
    /// When no more lines come, shows those that are held back to be folded.
    bool finish(const Sink& sink);

    /// So many nodes are read.
    [[nodiscard]] std::size_t open_count() const { return open_count_; }
    /// All nodes have sent what there was when they were met, or have failed.
    [[nodiscard]] bool has_history() const { return in_history_.empty(); }
    /// Some node has more, or may have it later (--follow), also one that is still to be met. One that has no files
    /// never has.
    [[nodiscard]] bool may_go_on() const;
    /// The round is over for all nodes, and the next one was not met yet.
    [[nodiscard]] bool awaits_round() const;
    /// Some node did not send all of its lines.
    [[nodiscard]] bool has_failed() const { return has_failed_; }
    /// The job is over, and its last round ended before meet() heard of it.
    [[nodiscard]] bool has_missed_round() const;
    /// So many nodes were cut off, and have not been met again.
    [[nodiscard]] std::size_t cut_off_count() const;

  private:
    /// One agent, however often it is met.
    struct Node {
        std::string name;
        std::shared_ptr<NodeLogs> logs{};      ///< Null: it has ended.
        LogOrder::NodeId order = 0;            ///< Of the connection.
        std::uint16_t port = 0;                ///< At which it was met. 0: it is to be met again.
        std::optional<std::uint64_t> round{};  ///< In which it was met.
        bool has_ended = false;                ///< It said so, and that there is no more in a later round.
        bool round_is_over = false;            ///< It said so.
        bool is_cut_off = false;
        std::map<std::string, std::uint64_t> positions{};
        std::int64_t ahead_ns = 0;                 ///< Of its clock before ours.
        std::optional<std::int64_t> reached_ns{};  ///< By our clock: all lines until then have come.
        std::set<std::string> told{};              ///< Each trouble is said once.
    };

    void connect(Node& node, const JobAgents::Agent& agent);
    LogOrder::NodeId order_for(Node& node);
    void forget_gone(const JobAgents& job);
    bool take(Node& node, agent::LogMessage message);
    void ended(Node& node, const std::string& why);
    void tell(Node& node, const std::string& why);
    bool show(const Sink& sink);

    LogRequest request_;
    const Instant began_ = std::chrono::steady_clock::now();
    const std::function<bool(const agent::LogLine& line)> wanted_;
    const std::vector<Way> ways_;
    const Trouble trouble_;
    boost::asio::io_context io_{1};
    /// read() waits its turn also while no node is connected, as between two rounds.
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> awake_{io_.get_executor()};
    rendezvous::Resolver resolver_{io_};
    LogOrder order_;
    LogShow show_;
    std::map<std::string, Node> nodes_;  ///< By incarnation.
    std::vector<Node*> by_order_;
    std::vector<LogOrder::NodeId> left_orders_;  ///< Of connections that have ended.
    std::set<const Node*> in_history_;
    std::set<Node*> paused_;
    std::optional<std::uint64_t> seen_round_{};  ///< The newest whose nodes were named, also those that are not wanted.
    std::optional<std::uint64_t> over_round_{};  ///< The last one of a job that is over.
    std::size_t open_count_ = 0;
    std::size_t waiting_ = 0;  ///< Nodes that may have a round later.
    bool has_failed_ = false;
    std::set<std::uint32_t> ranks_;  ///< All that had a line.
};

}  // namespace muster::launcher
