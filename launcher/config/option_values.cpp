#include "launcher/config/option_values.h"

#include <algorithm>
#include <array>
#include <boost/uuid/random_generator.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::uint32_t nodes_limit = 20'000;
constexpr double seconds_limit = 10.0 * 366 * 86'400;

std::optional<StreamMask> stream_mask(std::string_view text) {
    if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
    return static_cast<StreamMask>(text[0] - '0');
}

/// The number of "SIGTERM", or 0. Real-time signals (SIGRTMIN, ...) are not supported.
int signal_number(std::string_view name) {
    if (!name.starts_with("SIG")) return 0;
    const std::string abbreviation(name.substr(3));
    for (int number = 1; number < 32; ++number) {
        const char* known = sigabbrev_np(number);
        if (known != nullptr && abbreviation == known) return number;
    }
    return 0;
}

}  // namespace

std::optional<std::int64_t> whole_number(std::string_view text) {
    text = trim(text);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    std::int64_t value = 0;
    if (!parse_number(text, value)) return std::nullopt;
    return value;
}

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t lowest, std::int64_t highest) {
    const auto value = whole_number(text);
    if (!value || *value < lowest || *value > highest) return std::nullopt;
    return value;
}

std::optional<Duration> seconds(std::string_view text) {
    text = trim(text);
    double value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    if (!std::isfinite(value) || value < 0 || value > seconds_limit) return std::nullopt;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

std::optional<RestartBudget> restart_budget(std::string_view text) {
    const auto pieces = split(text, '/');
    const auto count = whole_number(pieces.front(), 0, std::numeric_limits<std::int32_t>::max());
    if (!count || pieces.size() > 2) return std::nullopt;
    RestartBudget budget{static_cast<std::uint32_t>(*count), {}};
    if (pieces.size() == 1) return budget;
    auto window = pieces.back();
    const auto letter = window.empty() ? std::string_view::npos : std::string_view("smhd").find(window.back());
    if (letter == std::string_view::npos) return std::nullopt;
    constexpr std::array units = {1s, 60s, 3600s, 86'400s};
    window.remove_suffix(1);
    const auto number = whole_number(window, 1, 30 * 86'400);
    if (!number || *number * units[letter] > 30 * 24h) return std::nullopt;
    budget.window = *number * units[letter];
    return budget;
}

std::optional<NodeFailures> node_failures(std::string_view text) {
    const auto pieces = split(text, '/');
    if (pieces.size() == 1) return whole_number(text) == 0 ? std::optional(NodeFailures{}) : std::nullopt;
    if (pieces.size() > 2) return std::nullopt;
    const auto max = whole_number(pieces.front(), 1, 100);
    const auto of = whole_number(pieces.back(), 1, 100);
    if (!max || !of || *max > *of) return std::nullopt;
    return NodeFailures{static_cast<std::uint32_t>(*max), static_cast<std::uint32_t>(*of)};
}

std::optional<int> handled_signal(std::string_view text) {
    const auto number = whole_number(text, 1, SIGRTMAX);
    const int signal =
        number ? static_cast<int>(*number) : signal_number(text.starts_with("SIG") ? text : cat("SIG", text));
    if (signal == 0 || signal == SIGKILL || signal == SIGSTOP) return std::nullopt;
    return signal;
}

std::optional<NodeRange> node_range(std::string_view text) {
    const auto pieces = split(text, ':');
    if (pieces.size() > 2) return std::nullopt;
    const auto min = whole_number(pieces.front(), 1, nodes_limit);
    const auto max = whole_number(pieces.back(), 1, nodes_limit);
    if (!min || !max || *min > *max) return std::nullopt;
    return NodeRange{static_cast<std::uint32_t>(*min), static_cast<std::uint32_t>(*max)};
}

std::optional<StreamChoice> stream_choice(std::string_view text) {
    if (const auto mask = stream_mask(text)) return StreamChoice{*mask, {}};
    StreamChoice choice;
    for (const auto piece : split(text, ',')) {
        const auto colon = piece.find(':');
        if (colon == std::string_view::npos) return std::nullopt;
        std::uint32_t local_rank = 0;
        const auto mask = stream_mask(piece.substr(colon + 1));
        if (!mask || !parse_number(piece.substr(0, colon), local_rank)) return std::nullopt;
        choice.by_local_rank[local_rank] = *mask;
    }
    return choice;
}

std::optional<ListenPlace> listen_place(std::string_view text) {
    const auto colon = text.rfind(':');
    const auto host = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
    const auto place = parse_endpoint(host, 0);
    const auto ports = parse_port_range(text.substr(colon + 1));
    const bool is_whole = host.find(':') == std::string_view::npos || host.ends_with(']');
    return place && ports && is_whole ? std::optional(ListenPlace{place->host, *ports}) : std::nullopt;
}

std::optional<std::vector<std::uint32_t>> local_ranks(std::string_view text) {
    std::vector<std::uint32_t> ranks;
    for (const auto piece : split(text, ',')) {
        const auto rank = whole_number(piece, 0, std::numeric_limits<std::uint32_t>::max());
        if (!rank) return std::nullopt;
        ranks.push_back(static_cast<std::uint32_t>(*rank));
    }
    return ranks;
}

std::vector<std::string> comma_list(std::string_view text) {
    std::vector<std::string> items(1);
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != ',') {
            items.back().push_back(text[at]);
        } else if (at + 1 < text.size() && text[at + 1] == ',') {
            items.back().push_back(',');
            ++at;
        } else {
            items.emplace_back();
        }
    }
    return items;
}

SignalList signal_list(std::string_view text) {
    SignalList list;
    for (const auto piece : split(text, ',')) {
        const auto name = trim(piece);
        const int number = signal_number(name);
        if (number == 0 || number == SIGKILL || number == SIGSTOP)
            list.unusable.emplace_back(name);
        else if (std::ranges::find(list.numbers, number) == list.numbers.end())
            list.numbers.push_back(number);
    }
    return list;
}

std::optional<bool> truth(std::string_view text) {
    std::string lower(trim(text));
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* yes : {"1", "true", "t", "yes", "y"})
        if (lower == yes) return true;
    for (const char* no : {"0", "false", "f", "no", "n"})
        if (lower == no) return false;
    return std::nullopt;
}

bool are_modules(std::string_view text) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const auto names = split(text, ',');
    return std::ranges::none_of(names, [](std::string_view name) {
        return name.empty() || name.find_first_not_of(letters) != std::string_view::npos;
    });
}

std::string nearest_in_brackets(std::string_view value, const std::vector<std::string>& choices) {
    const auto near = nearest(value, choices);
    return near.empty() ? std::string{} : cat(" (nearest: ", near, ")");
}

std::string random_uuid() {
    return to_string(boost::uuids::random_generator()());
}

}  // namespace muster::launcher
