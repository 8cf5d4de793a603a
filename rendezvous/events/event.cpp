#include "rendezvous/events/event.h"

#include <algorithm>
#include <array>
#include <boost/pfr/core.hpp>
#include <concepts>
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

/// The members of "data" for the fields of EventFacts, in its order.
constexpr std::array<std::string_view, 37> fact_names{
    "host",          "pid",        "rank",           "local_rank",   "group_rank",      "node",
    "slots",         "role",       "expected_hosts", "role_rank",    "role_world_size", "reason",
    "kind",          "cause",      "section",        "check",        "level",           "outcome",
    "waiting_for",   "nodes_min",  "nodes_max",      "restarts_max", "members",         "nodes",
    "ranks",         "ranks_max",  "restart_count",  "step",         "first_step",      "checkpoint_step",
    "data_wait_ms",  "section_ms", "detecting_ms",   "hung_ms",      "queued_ms",       "dropped",
    "uncertainty_ms"};
static_assert(fact_names.size() == boost::pfr::tuple_size_v<EventFacts>);

std::string section_ms(const SectionTimes& sections) {
    JsonObject out;
    for (const auto& [name, time_ns] : sections) {
        const auto quoted = json_text(name);
        out.add(std::string_view(quoted).substr(1, quoted.size() - 2), cat(time_ns / 1'000'000));
    }
    return out.whole();
}

std::string data_of(const Event& event) {
    JsonObject data;
    data.text("job", event.job);
    data.number("round", event.round);
    boost::pfr::for_each_field(event.facts, [&data]<class T>(const T& value, std::size_t index) {
        const auto name = fact_names[index];
        if constexpr (std::same_as<T, SectionTimes>) {
            if (!value.empty()) data.add(name, section_ms(value));
        } else if constexpr (std::same_as<T, std::string>) {
            data.text(name, value);
        } else if (value != 0 || name != "pid") {
            data.number(name, value);
        }
    });
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
