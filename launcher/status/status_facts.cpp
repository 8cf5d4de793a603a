#include "launcher/status/status_facts.h"

#include <nlohmann/json.hpp>
#include <set>

#include "launcher/scheduler/host_list.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using nlohmann::json;

/// Peers have a say in names and sentences, so they are escaped.
std::string text_in(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? printable_line(found->get_ref<const std::string&>())
                                                       : std::string();
}

std::int64_t number_in(const json& object, const char* name, std::int64_t otherwise) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
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
    node.pid = number_in(object, "pid", 0);
    node.place = text_in(object, "place");
    node.slots = number_in(object, "slots", 0);
    node.group_rank = number_in(object, "group_rank", -1);
    node.rank_base = number_in(object, "rank_base", -1);
    node.silent_ms = number_in(object, "silent_ms", 0);
    node.is_connected = flag_in(object, "connected", true);
    node.is_left_out = flag_in(object, "left_out", false);
    for (const char* pace : {"overdue", "waiting"})
        for (const auto& one : list_in(object, pace)) {
            if (!one.is_object()) continue;
            node.ranks.push_back({.rank = number_in(one, "rank", -1),
                                  .is_overdue = std::string_view(pace) == "overdue",
                                  .idle_ms = number_in(one, "idle_ms", 0),
                                  .operation = text_in(one, "operation"),
                                  .place = text_in(one, "place")});
        }
    return node;
}

/// "gpu07.cluster" and "gpu07" are one host.
std::string_view short_name(std::string_view host) {
    return host.substr(0, host.find('.'));
}

std::vector<std::string> missing_in(const json& object, const std::vector<StatusNode>& nodes) {
    const auto expected = parse_host_list(text_in(object, "expected_hosts"));
    if (!expected) return {};
    std::set<std::string_view> here;
    for (const auto& node : nodes) here.insert(short_name(node.host));
    std::vector<std::string> missing;
    for (const auto& host : *expected)
        if (!here.contains(short_name(host))) missing.push_back(host);
    // None of them is here: the scheduler's names of hosts are not those that the hosts have themselves.
    return missing.size() == expected->size() ? std::vector<std::string>() : missing;
}

StatusJob job_in(const json& object) {
    StatusJob job;
    job.id = text_in(object, "id");
    job.phase = text_in(object, "phase");
    job.waiting_for = text_in(object, "waiting_for");
    job.round = number_in(object, "round", -1);
    job.restarts_used = number_in(object, "restarts_used", 0);
    job.restarts_max = number_in(object, "restarts_max", 0);
    job.nodes_min = number_in(object, "nodes_min", 0);
    job.nodes_max = number_in(object, "nodes_max", 0);
    job.step = number_in(object, "step", -1);
    job.checkpoint_step = number_in(object, "checkpoint_step", -1);
    if (const auto goodput = object.find("goodput"); goodput != object.end() && goodput->is_object())
        job.goodput = text_in(*goodput, "text");
    for (const auto& node : list_in(object, "nodes"))
        if (node.is_object()) job.nodes.push_back(node_in(node));
    if (job.phase == "gathering") job.missing_hosts = missing_in(object, job.nodes);
    return job;
}

}  // namespace

Result<StatusFacts> read_status_facts(std::string_view text) {
    const auto page = json::parse(text, nullptr, false);
    if (!page.is_object() || !page.contains("jobs") || !page["jobs"].is_array())
        return Error{Errc::bad_frame, "the answer is not a status page of muster; does another server own the port?"};
    StatusFacts facts;
    facts.stands_by = flag_in(page, "standby", false);
    facts.leader = text_in(page, "leader");
    if (const auto stall = page.find("state_stalled"); stall != page.end() && stall->is_object())
        facts.trouble = text_in(*stall, "why");
    for (const auto& job : page["jobs"])
        if (job.is_object()) facts.jobs.push_back(job_in(job));
    return facts;
}

}  // namespace muster::launcher
