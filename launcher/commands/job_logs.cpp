#include "launcher/commands/job_logs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/output/log_files.h"
#include "launcher/commands/log_query.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t shown_bytes_max = 64 << 10;
constexpr std::size_t waiting_bytes_max = 64 << 20;  ///< Of all nodes.
/// A node that is slow delays the others no longer than this. Of what there is already, order is worth more.
constexpr Duration patience = 2s;
constexpr Duration patience_of_follower = 250ms;
/// A clock that was asked under load is wrong by less. What is sent again because of it is dropped.
constexpr Duration clock_error_max = 30s;
/// For lines that come later than that no fold waits.
constexpr std::int64_t fold_lag_max_ns = 500'000'000;

/// Lines of other nodes do not come.
LogRequest of_all_nodes(LogRequest request) {
    request.nodes.clear();
    return request;
}

}  // namespace

std::string agents_page(const std::string& job) {
    return cat("/api/v1/jobs/", percent_encoded(job), "/agents");
}

Result<JobAgents> read_job_agents(const std::string& json) {
    const Error malformed{Errc::bad_frame,
                          "it does not say where the job's agents are; is it another version of muster?"};
    const auto read = nlohmann::json::parse(json, nullptr, false);
    if (!read.is_object() || !read.contains("nodes") || !read["nodes"].is_array()) return malformed;
    try {
        JobAgents job{
            .round = read.contains("round") ? std::optional(read["round"].get<std::uint64_t>()) : std::nullopt,
            .waiting_nodes = read.value("waiting_nodes", std::set<std::string>()),
            .is_over = read.value("over", false),
            .agents = {}};
        for (const auto& node : read["nodes"])
            job.agents.push_back({.incarnation = node.at("incarnation").get<std::string>(),
                                  .host = node.at("host").get<std::string>(),
                                  .name = cat(printable_line(node.at("host").get<std::string>()), " (pid ",
                                              node.at("pid").get<std::int64_t>(), ")"),
                                  .place = {.host = node.at("address").get<std::string>(),
                                            .port = node.at("port").get<std::uint16_t>()}});
        return job;
    } catch (const nlohmann::json::exception&) {
        return malformed;
    }
}

JobLogs::JobLogs(LogRequest request, std::vector<Way> ways, Trouble trouble)
    : request_(std::move(request)),
      wanted_(line_filter(of_all_nodes(request_))),
      ways_(std::move(ways)),
      trouble_(std::move(trouble)),
      order_(request_.follow ? patience_of_follower : patience),
      show_(form_of(request_)) {}

JobLogs::~JobLogs() {
    for (auto& [incarnation, node] : nodes_)
        if (node.logs) node.logs->cancel();
}

void JobLogs::meet(const JobAgents& job) {
    waiting_ = job.waiting_nodes.size();
    // One that is met later, or again, delays nobody: its lines may be late.
    if (nodes_.empty() && !job.agents.empty()) order_.wait_for_clocks(std::chrono::steady_clock::now() + patience);
    // Of a node that is not in the last round, its own last one is not the job's.
    if (request_.last_round && !request_.round && !job.is_over) request_.round = job.round;
    if (!job.agents.empty()) seen_round_ = job.round;
    over_round_ = job.is_over ? job.round : std::nullopt;
    for (const auto& agent : job.agents) {
        if (!is_of_nodes(agent.host, request_.nodes)) continue;
        auto& node = nodes_[agent.incarnation];
        if (node.logs || open_count_ >= nodes_max || (node.port == agent.place.port && node.round == job.round))
            continue;
        node.round = job.round;
        connect(node, agent);
    }
    if (!nodes_.empty()) request_.last.reset();  // All that a node prints from now on is wanted.
    if (nodes_.size() > 2 * nodes_max) forget_gone(job);
}

/// A job whose agents are started again and again. Those that wait for a round go on in their files later.
void JobLogs::forget_gone(const JobAgents& job) {
    auto present = job.waiting_nodes;
    for (const auto& agent : job.agents) present.insert(agent.incarnation);
    std::set<const Node*> waiting;  // Lines of theirs are still to be shown.
    for (const auto id : left_orders_)
        if (order_.waiting_bytes(id) > 0) waiting.insert(by_order_[id]);
    std::erase_if(nodes_, [&](const auto& one) {
        return !one.second.logs && !present.contains(one.first) && !waiting.contains(&one.second);
    });
}

LogOrder::NodeId JobLogs::order_for(Node& node) {
    for (auto& id : left_orders_) {
        if (!order_.begin_again(id)) continue;
        const auto found = id;
        id = left_orders_.back();
        left_orders_.pop_back();
        by_order_[found] = &node;
        return found;
    }
    by_order_.push_back(&node);
    return order_.add_node();
}

void JobLogs::connect(Node& node, const JobAgents::Agent& agent) {
    node.name = agent.name;
    node.has_ended = node.round_is_over = false;
    node.port = agent.place.port;
    node.order = order_for(node);
    auto asked = request_;
    asked.resume = node.positions;
    if (asked.since) *asked.since += std::chrono::steady_clock::now() - began_;
    if (node.reached_ns)
        asked.unread =
            std::max<Duration>(0s, std::chrono::nanoseconds(agent::log_time_ns() - *node.reached_ns)) + clock_error_max;
    NodeLogs::Request question{.agent = agent.place, .target = log_target(asked), .ways = ways_};
    if (!has_positions(question.target)) question.known = node.positions;
    in_history_.insert(&node);
    ++open_count_;
    node.logs =
        NodeLogs::start(io_, resolver_, std::move(question),
                        {.message = [this, &node](agent::LogMessage message) { return take(node, std::move(message)); },
                         .clock =
                             [this, &node](std::int64_t ahead_ns) {
                                 node.ahead_ns = ahead_ns;
                                 order_.set_clock(node.order, ahead_ns);
                             },
                         .end = [this, &node](const std::string& why) { ended(node, why); }});
}

bool JobLogs::take(Node& node, agent::LogMessage message) {
    if (auto* sent = std::get_if<agent::SentLine>(&message)) {
        ranks_.insert(sent->line.owner->rank);
        if (!wanted_ || wanted_(sent->line))
            order_.add(node.order, sent->file, std::move(sent->line), std::chrono::steady_clock::now());
    } else if (const auto* reached = std::get_if<agent::LogReached>(&message)) {
        order_.reached(node.order, reached->time_ns, std::chrono::steady_clock::now());
        node.reached_ns = reached->time_ns - node.ahead_ns;
        in_history_.erase(&node);
        node.is_cut_off = false;
    } else if (std::holds_alternative<agent::LogRoundOver>(message)) {
        node.round_is_over = true;
    } else if (const auto* trouble = std::get_if<agent::LogTrouble>(&message)) {
        tell(node, printable_line(trouble->text));
    }
    const auto most = std::clamp<std::size_t>(waiting_bytes_max / nodes_.size(), 64 << 10, 1 << 20);
    if (order_.waiting_bytes(node.order) < most) return true;
    paused_.insert(&node);
    return false;
}

void JobLogs::tell(Node& node, const std::string& why) {
    has_failed_ = true;
    if (node.told.insert(why).second) trouble_(cat(node.name, ": ", why));
}

void JobLogs::ended(Node& node, const std::string& why) {
    for (const auto& [name, position] : node.logs->positions()) node.positions[name] = position;
    node.logs.reset();
    --open_count_;
    paused_.erase(&node);
    in_history_.erase(&node);
    order_.end(node.order);
    left_orders_.push_back(node.order);
    node.has_ended = why.empty() && !node.round_is_over;
    node.is_cut_off = !why.empty();
    // It may answer later, at the same port.
    if (!why.empty() && request_.follow) node.port = 0;
    if (!why.empty())
        tell(node, request_.follow ? cat(why, "; it goes on when the node has its next round")
                                   : cat(why, "; its other lines are missing here"));
}

bool JobLogs::may_go_on() const {
    return nodes_.empty() || waiting_ > 0 ||
           std::ranges::any_of(nodes_, [](const auto& one) { return !one.second.has_ended; });
}

bool JobLogs::awaits_round() const {
    return open_count_ == 0 && std::ranges::any_of(nodes_, [](const auto& one) { return one.second.round_is_over; });
}

bool JobLogs::has_missed_round() const {
    return over_round_ && !request_.round && over_round_ != seen_round_;
}

std::size_t JobLogs::cut_off_count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(nodes_, [](const auto& one) { return one.second.is_cut_off; }));
}

bool JobLogs::show(const Sink& sink) {
    while (auto line = order_.next(std::chrono::steady_clock::now())) {
        auto& node = *by_order_[line->node];
        // One number for a file of a connection: an agent has fewer than files_max.
        const auto file = line->node * agent::LogWireReader::files_max + line->file;
        show_.add(file, line->line, ranks_.size(), line->is_late ? LogShow::Order::late : LogShow::Order::kept);
        if (node.logs && order_.waiting_bytes(node.order) == 0 && paused_.erase(&node) > 0) node.logs->resume();
        if (show_.size() >= shown_bytes_max && !show_.give(sink)) return false;
    }
    return show_.give(sink);
}

bool JobLogs::read(const Sink& sink, Duration turn) {
    if (!show(sink)) return false;
    const auto until = std::min(order_.due(), std::chrono::steady_clock::now() + turn);
    if (io_.run_one_until(until) > 0) io_.poll();
    if (!show(sink)) return false;
    if (!request_.follow) return true;
    const auto now_ns = agent::log_time_ns();
    show_.show_due(std::clamp(order_.complete_ns(), now_ns - fold_lag_max_ns, now_ns - agent::LogMerge::write_lag_ns));
    return show_.give(sink);
}

bool JobLogs::finish(const Sink& sink) {
    if (!show(sink)) return false;
    show_.finish();
    return show_.give(sink);
}

}  // namespace muster::launcher
