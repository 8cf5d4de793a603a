#include "rendezvous/events/event.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/text/utc.h"

namespace muster {

namespace {

std::string padded(std::uint64_t number, std::size_t width) {
    auto text = cat(number);
    return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

/// RFC 3339 in UTC, with microseconds.
std::string time_text(Duration since_1970) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_1970);
    const auto fraction = since_1970 - seconds;
    return cat(utc_text(seconds, "%Y-%m-%dT%H:%M:%S"), ".",
               padded(static_cast<std::uint64_t>(std::chrono::floor<std::chrono::microseconds>(fraction).count()), 6),
               "Z");
}

std::string subject_of(const Event& event) {
    if (event.facts.rank >= 0) return cat("rank/", event.facts.rank);
    if (!event.facts.host.empty()) return cat("node/", event.facts.host);
    return event.round == no_round ? std::string() : cat("round/", event.round);
}

/// Nearly all text needs no escape, and the library is slower than a copy. What is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view value) {
    constexpr auto is_plain = [](char letter) {
        return letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
    };
    if (std::ranges::all_of(value, is_plain)) return cat('"', value, '"');
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A JSON object. Members that do not apply are left out.
class JsonObject {
  public:
    void add(std::string_view name, std::string_view json) {
        out_.append(out_.empty() ? "{\"" : ",\"").append(name).append("\":").append(json);
    }
    void text(std::string_view name, std::string_view value) {
        if (!value.empty()) add(name, json_text(value));
    }
    void number(std::string_view name, std::int64_t value) {
        if (value >= 0) add(name, cat(value));
    }
    [[nodiscard]] std::string whole() const { return out_.empty() ? "{}" : out_ + "}"; }

  private:
    std::string out_;
};

std::string data_of(const Event& event) {
    JsonObject data;
    const auto& facts = event.facts;
    data.text("job", event.job);
    data.number("round", event.round);
    data.text("host", facts.host);
    if (facts.pid > 0) data.number("pid", facts.pid);
    data.number("rank", facts.rank);
    data.number("local_rank", facts.local_rank);
    data.number("group_rank", facts.group_rank);
    data.number("node", facts.node);
    data.number("slots", facts.slot_count);
    data.text("role", facts.role);
    data.text("expected_hosts", facts.expected_hosts);
    data.number("role_rank", facts.role_rank);
    data.number("role_world_size", facts.role_world_size);
    data.text("reason", facts.reason);
    data.text("kind", facts.kind);
    data.text("cause", facts.cause);
    data.text("section", facts.section);
    data.text("check", facts.check);
    data.text("level", facts.level);
    data.text("outcome", facts.outcome);
    data.text("waiting_for", facts.waiting_for);
    data.number("nodes_min", facts.nodes_min);
    data.number("nodes_max", facts.nodes_max);
    data.number("restarts_max", facts.restarts_max);
    data.text("members", facts.members);
    data.number("nodes", facts.node_count);
    data.number("ranks", facts.rank_count);
    data.number("ranks_max", facts.rank_count_max);
    data.number("restart_count", facts.restart_count);
    data.number("step", facts.step);
    data.number("first_step", facts.first_step);
    data.number("checkpoint_step", facts.checkpoint_step);
    data.number("data_wait_ms", facts.data_wait_ms);
    JsonObject sections;
    for (const auto& [name, time_ns] : facts.sections) {
        const auto quoted = json_text(name);
        sections.add(std::string_view(quoted).substr(1, quoted.size() - 2), cat(time_ns / 1'000'000));
    }
    if (!facts.sections.empty()) data.add("section_ms", sections.whole());
    data.number("detecting_ms", facts.detecting_ms);
    data.number("hung_ms", facts.hung_ms);
    data.number("queued_ms", facts.queued_ms);
    data.number("dropped", facts.dropped_count);
    data.number("uncertainty_ms", facts.uncertainty_ms);
    data.add("text", json_text(event.text));
    return data.whole();
}

}  // namespace

std::string type_name(EventKind kind) {
    if (kind == EventKind::notice_given) return "muster.preemption.notice.v1";
    std::string name(enumerator_name(kind, "job_note"));
    name.replace(name.find('_'), 1, ".");
    return cat("muster.", name, ".v1");
}

std::string event_line(const Event& event, const EventStamp& stamp) {
    const auto place =
        event.job.empty() ? std::string("muster:/daemon") : cat("muster:/job/", percent_encoded(event.job));
    JsonObject out;
    out.text("specversion", "1.0");
    // CloudEvents: source and id together are unique. A stream counts for each job, which is in the source.
    out.text("id", cat(stamp.stream, "/", stamp.sequence));
    out.text("source", stamp.node.empty() ? place : cat(place, "/node/", percent_encoded(stamp.node)));
    out.text("type", type_name(event.kind));
    out.text("time", time_text(stamp.since_1970));
    out.text("subject", subject_of(event));
    out.text("sequence", padded(stamp.sequence, 11));
    out.text("datacontenttype", "application/json");
    out.add("data", data_of(event));
    return out.whole() + "\n";
}

}  // namespace muster
