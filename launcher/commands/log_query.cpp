#include "launcher/commands/log_query.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t ranks_max = 100'000;
constexpr std::int64_t since_max_s = std::int64_t{3650} * 86'400;
constexpr std::size_t since_bytes_max = sizeof "&since=315360000&from=";

/// Names as they are, but for what has a meaning in a target.
bool is_plain(std::string_view name) {
    return !name.empty() && name.find_first_of(" ,:&#?%\t\r\n") == std::string_view::npos;
}

bool read_positions(std::string_view text, std::map<std::string, std::uint64_t>& positions) {
    for (const auto piece : split(text, ',')) {
        const auto colon = piece.find(':');
        if (colon == std::string_view::npos || !is_plain(piece.substr(0, colon)) ||
            !parse_number(piece.substr(colon + 1), positions[std::string(piece.substr(0, colon))]))
            return false;
    }
    return true;
}

/// False for a value that is none.
bool read_part(std::string_view name, std::string_view value, LogRequest& request) {
    if (name == "job") {
        auto job = percent_decoded(value);
        request.job = job ? *std::move(job) : std::string();
        return !request.job.empty();
    }
    if (name == "ranks") return (request.ranks = read_ranks(value)).has_value();
    if (name == "stream") {
        request.out = value == "out";
        request.err = value == "err";
        return request.out != request.err;
    }
    if (name == "round") return parse_number(value, request.round.emplace());
    if (name == "last") return parse_number(value, request.last.emplace());
    if (name == "from") return read_positions(value, request.resume);
    if (name == "untimed") return request.untimed = value == "1";
    if (name == "follow") return request.follow = value == "1";
    std::int64_t age = 0;
    if (name != "since" || !parse_number(value, age) || age < 0 || age > since_max_s) return false;
    request.since = std::chrono::seconds(age);
    return true;
}

}  // namespace

std::optional<std::set<std::uint32_t>> read_ranks(std::string_view text) {
    std::set<std::uint32_t> ranks;
    std::size_t count = 0;  // of all pieces, which may name a rank again
    for (const std::string_view piece : split(text, ',')) {
        const auto dash = piece.find('-');
        std::uint32_t first = 0;
        if (!parse_number(piece.substr(0, dash), first)) return std::nullopt;
        auto last = first;
        if (dash != std::string_view::npos && !parse_number(piece.substr(dash + 1), last)) return std::nullopt;
        if (first > last || last > rank_max) return std::nullopt;
        count += last - first + 1;
        if (count > ranks_max) return std::nullopt;
        for (auto rank = first; rank <= last; ++rank) ranks.insert(ranks.end(), rank);
    }
    return ranks;
}

std::string log_target(const LogRequest& request) {
    std::string target(logs_path);
    const auto add = [&](const auto&... part) {
        target += cat(target.size() == logs_path.size() ? '?' : '&', part...);
    };
    if (!request.job.empty()) add("job=", percent_encoded(request.job));
    if (request.ranks) add("ranks=", describe_ranges({request.ranks->begin(), request.ranks->end()}));
    if (request.out != request.err) add("stream=", request.out ? "out" : "err");
    if (request.round) add("round=", *request.round);
    if (request.follow) add("follow=1");
    const bool is_filtered = request.failed || !request.include.empty() || !request.exclude.empty();
    if (request.last && !is_filtered) add("last=", *request.last);
    std::string positions;
    for (const auto& [name, offset] : request.resume)
        if (is_plain(name)) positions += cat(positions.empty() ? "" : ",", name, ":", offset);
    const bool has_room = target.size() + positions.size() + since_bytes_max < log_target_bytes_max;
    auto since = request.since;
    // The viewer has some of the lines without a time, too, and drops these.
    if (!has_room && request.unread && !since) add("untimed=1");
    if (!has_room && request.unread) since = std::min(since.value_or(*request.unread), *request.unread);
    if (since) add("since=", std::chrono::ceil<std::chrono::seconds>(*since).count());
    if (has_room && !positions.empty()) add("from=", positions);
    return target;
}

bool has_positions(std::string_view target) {
    return target.find("&from=") != std::string_view::npos || target.find("?from=") != std::string_view::npos;
}

std::optional<LogRequest> read_log_target(std::string_view target) {
    LogRequest request;
    if (!target.starts_with(logs_path)) return std::nullopt;
    target.remove_prefix(logs_path.size());
    if (target.empty()) return request;
    if (target.front() != '?') return std::nullopt;
    for (const auto part : split(target.substr(1), '&')) {
        const auto equals = part.find('=');
        if (equals == std::string_view::npos || !read_part(part.substr(0, equals), part.substr(equals + 1), request))
            return std::nullopt;
    }
    return request;
}

}  // namespace muster::launcher
