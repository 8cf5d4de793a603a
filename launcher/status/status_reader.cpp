#include "launcher/status/status_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/diagnosis/json_members.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using nlohmann::json;

/// Peers have a say in names and sentences, so they are escaped.
std::string text_in(const json& object, const char* name) {
    return printable_line(agent::text_of(object, name));
}

bool flag_in(const json& object, const char* name, bool otherwise) {
    const auto found = object.find(name);
    return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

const json& list_in(const json& object, const char* name) {
    static const json none = json::array();
    const auto found = object.find(name);
    return found != object.end() && found->is_array() ? *found : none;
}

StatusNode node_in(const json& object) {
    StatusNode node;
    node.host = text_in(object, "host");
    node.pid = agent::integer_or(object, "pid", 0);
    node.place = text_in(object, "place");
    node.slots = agent::integer_or(object, "slots", 0);
    node.group_rank = agent::integer_or(object, "group_rank");
    node.rank_base = agent::integer_or(object, "rank_base");
    node.silent_ms = agent::integer_or(object, "silent_ms", 0);
    node.is_connected = flag_in(object, "connected", true);
    node.is_left_out = flag_in(object, "left_out", false);
    const auto standbys = object.value("standbys", json());
    node.standby_count = agent::integer_or(standbys, "count", 0);
    node.standby_bytes = agent::integer_or(standbys, "memory_bytes", 0);
    for (const auto& one : list_in(object, "gpus")) {
        const auto percent = agent::integer_or(one, "busy_percent");
        if (percent >= 0 && percent <= 100) node.gpus.push_back({agent::integer_or(one, "index", 0), percent});
    }
    for (const char* pace : {"overdue", "waiting"})
        for (const auto& one : list_in(object, pace)) {
            if (!one.is_object()) continue;
            node.ranks.push_back({.rank = agent::integer_or(one, "rank"),
                                  .is_overdue = std::string_view(pace) == "overdue",
                                  .idle_ms = agent::integer_or(one, "idle_ms", 0),
                                  .operation = text_in(one, "operation"),
                                  .place = text_in(one, "place")});
        }
    return node;
}

/// There are four. An age beyond ten years is shown as that.
constexpr std::size_t tiers_max = 8;
constexpr std::int64_t age_max_s = 10LL * 365 * 24 * 3600;
constexpr double samples_per_second_max = 1e15;

/// Without its nodes.
StatusJob job_in(const json& object) {
    StatusJob job;
    job.id = text_in(object, "id");
    job.phase = text_in(object, "phase");
    job.waiting_for = text_in(object, "waiting_for");
    job.round = agent::integer_or(object, "round");
    job.restarts_used = agent::integer_or(object, "restarts_used", 0);
    job.restarts_max = agent::integer_or(object, "restarts_max", 0);
    job.restarts_left = agent::integer_or(object, "restarts_left");
    job.nodes_min = agent::integer_or(object, "nodes_min", 0);
    job.nodes_max = agent::integer_or(object, "nodes_max", 0);
    job.step = agent::integer_or(object, "step");
    if (const auto samples = object.find("samples_per_second"); samples != object.end() && samples->is_number())
        job.samples_per_second = std::clamp(samples->get<double>(), 0.0, samples_per_second_max);
    job.checkpoint_step = agent::integer_or(object, "checkpoint_step");
    if (const auto tiers = object.find("checkpoints"); tiers != object.end() && tiers->is_object())
        for (const auto& [tier, one] : tiers->items())
            if (one.is_object() && job.checkpoints.size() < tiers_max)
                job.checkpoints.push_back(
                    {tier, agent::integer_or(one, "step"), std::min(agent::integer_or(one, "age_s"), age_max_s)});
    job.goodput = text_in(object.value("goodput", json()), "text");
    return job;
}

constexpr std::string_view nodes_begin = R"("nodes":[)";
constexpr std::string_view silent_begin = R"("silent_ms":)";

/// Behind the end of the object that begins at `at`. Nothing: the text ends before.
std::optional<std::size_t> end_of_object(std::string_view text, std::size_t at) {
    std::size_t depth = 0;
    for (bool in_text = false; at < text.size(); ++at) {
        const char one = text[at];
        if (in_text) {
            if (one == '\\') ++at;
            in_text = one != '"';
        } else if (one == '"') {
            in_text = true;
        } else if (one == '{') {
            ++depth;
        } else if (one == '}' && --depth == 0) {
            return at + 1;
        }
    }
    return std::nullopt;
}

std::size_t end_of_digits(std::string_view text, std::size_t at) {
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at;
}

StatusReader::NodeText node_text(std::string_view page, std::size_t begin, std::size_t end) {
    const auto found = page.substr(begin, end - begin).find(silent_begin);
    if (found == std::string_view::npos) return {begin, end, end, end};
    const auto silent = begin + found + silent_begin.size();
    return {begin, end, silent, end_of_digits(page, silent)};
}

/// What a reader keeps of the page before.
struct PageBefore {
    std::string_view text;
    const std::vector<std::vector<StatusReader::NodeText>>& nodes;
};

/// The node that begins at `at`, if only the time since it was heard differs from `old`.
std::optional<StatusReader::NodeText> same_node(std::string_view page, std::size_t at, std::string_view before,
                                                const StatusReader::NodeText& old) {
    const auto head = before.substr(old.begin, old.silent - old.begin);
    const auto tail = before.substr(old.silent_end, old.end - old.silent_end);
    if (!page.substr(at).starts_with(head)) return std::nullopt;
    const auto silent = at + head.size();
    const auto silent_end = end_of_digits(page, silent);
    if (!page.substr(silent_end).starts_with(tail)) return std::nullopt;
    return StatusReader::NodeText{at, silent_end + tail.size(), silent, silent_end, true};
}

/// The page with the number of each list of nodes in its place, and where their nodes are. The text `"nodes":[` is
/// always a member's name, because a quotation mark inside of a text has a backslash before it.
struct Parts {
    std::string frame;
    std::vector<std::vector<StatusReader::NodeText>> nodes;
};

/// Nothing: the page is damaged, or laid out in another way than the daemon's.
std::optional<Parts> parts_of(std::string_view page, const PageBefore& before) {
    Parts parts;
    for (std::size_t at = 0;;) {
        const auto found = page.find(nodes_begin, at);
        if (found != std::string_view::npos && found > 0 && page[found - 1] == '\\') return std::nullopt;
        parts.frame += page.substr(at, found - at);
        if (found == std::string_view::npos) return parts;
        parts.frame += cat(R"("nodes":)", parts.nodes.size());
        static const std::vector<StatusReader::NodeText> none;
        const auto& old = parts.nodes.size() < before.nodes.size() ? before.nodes[parts.nodes.size()] : none;
        auto& nodes = parts.nodes.emplace_back();
        nodes.reserve(old.size());
        at = found + nodes_begin.size();
        while (at < page.size() && page[at] == '{') {
            auto node = nodes.size() < old.size() ? same_node(page, at, before.text, old[nodes.size()]) : std::nullopt;
            if (!node) {
                const auto end = end_of_object(page, at);
                if (!end) return std::nullopt;
                node = node_text(page, at, *end);
            }
            nodes.push_back(*node);
            at = node->end;
            if (at < page.size() && page[at] == ',') ++at;
        }
        if (at >= page.size() || page[at] != ']') return std::nullopt;
        ++at;
    }
}

/// `nodes`: those of the page before.
std::vector<StatusNode> nodes_in(std::string_view page, const std::vector<StatusReader::NodeText>& texts,
                                 std::vector<StatusNode> nodes) {
    const auto old_count = nodes.size();
    nodes.resize(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto& text = texts[i];
        if (text.is_same && i < old_count &&
            parse_number(page.substr(text.silent, text.silent_end - text.silent), nodes[i].silent_ms))
            continue;
        const auto object = json::parse(page.substr(text.begin, text.end - text.begin), nullptr, false);
        nodes[i] = object.is_object() ? node_in(object) : StatusNode{};
    }
    return nodes;
}

}  // namespace

Result<void> StatusReader::read(std::string text) {
    auto parts = parts_of(text, {page_, lists_});
    const auto page = json::parse(parts ? std::string_view(parts->frame) : text, nullptr, false);
    if (!page.is_object() || !page.contains("jobs") || !page["jobs"].is_array())
        return Error{Errc::bad_frame, "the answer is not a status page of muster; does another server own the port?"};
    StatusFacts facts;
    facts.stands_by = flag_in(page, "standby", false);
    facts.leader = text_in(page, "leader");
    facts.trouble = text_in(page.value("state_stalled", json()), "why");
    bool in_order = parts.has_value();
    for (const auto& object : page["jobs"]) {
        if (!object.is_object()) continue;
        auto& job = facts.jobs.emplace_back(job_in(object));
        const auto at = facts.jobs.size() - 1;
        const auto list = static_cast<std::size_t>(agent::integer_or(object, "nodes"));
        in_order = in_order && list == at;
        if (parts && list < parts->nodes.size()) {
            const bool is_known = in_order && at < facts_.jobs.size();
            job.nodes = nodes_in(text, parts->nodes[list],
                                 is_known ? std::move(facts_.jobs[at].nodes) : std::vector<StatusNode>());
        }
        for (const auto& node : list_in(object, "nodes"))
            if (node.is_object()) job.nodes.push_back(node_in(node));
    }
    page_ = std::move(text);
    lists_ = in_order ? std::move(parts->nodes) : std::vector<std::vector<NodeText>>();
    facts_ = std::move(facts);
    return {};
}

void LatestStatus::take(Result<std::string> answer, Instant now) {
    const auto read = answer ? reader.read(std::move(*answer)) : Result<void>(answer.error());
    trouble = read ? std::string() : read.error().context;
    if (!read) return;
    has_facts = true;
    answered_at = now;
}

Result<StatusFacts> read_status_facts(std::string_view page) {
    StatusReader reader;
    if (auto read = reader.read(std::string(page)); !read) return read.error();
    return reader.facts();
}

}  // namespace muster::launcher
