// Parsers of single option values. Pure. Each function returns nothing for a text that it does not accept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

/// A decimal whole number as Python's int() takes it: blanks around it and a leading '+' are allowed.
std::optional<std::int64_t> whole_number(std::string_view text);

/// The same, limited to [lowest, highest].
std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t lowest, std::int64_t highest);

/// Seconds, whole or decimal, from 0 to ten years.
std::optional<Duration> seconds(std::string_view text);

struct RestartBudget {
    std::uint32_t count = 0;
    Duration window{};  ///< 0: the whole job.
};
/// "3" or "10/1h": a whole number, optionally followed by '/' and a whole number of s, m, h or d, 1 s to 30 days.
std::optional<RestartBudget> restart_budget(std::string_view text);

struct NodeFailures {
    std::uint32_t max = 0;  ///< 0: off.
    std::uint32_t of = 0;
};
/// "M/N" with 0 < M <= N <= 100, or "0".
std::optional<NodeFailures> node_failures(std::string_view text);

/// The number of "SIGUSR1", "USR1" or "10", if it is a signal that can be handled.
std::optional<int> handled_signal(std::string_view text);

struct NodeRange {
    std::uint32_t min = 1;
    std::uint32_t max = 1;
};
/// "N" or "MIN:MAX" with 0 < MIN <= MAX <= 20,000 (the daemon's limit for a job).
std::optional<NodeRange> node_range(std::string_view text);

/// "0".."3", or "local rank:mask,..." (local ranks of any number of digits, unlike torchrun's).
std::optional<StreamChoice> stream_choice(std::string_view text);

/// "P" or "P-Q", at 127.0.0.1, or behind "ADDR:". An address of IPv6 is in brackets: its last part would be a port.
std::optional<ListenPlace> listen_place(std::string_view text);

/// "0,1,12".
std::optional<std::vector<std::uint32_t>> local_ranks(std::string_view text);

/// Comma-separated items. ",," is a literal comma in an item.
std::vector<std::string> comma_list(std::string_view text);

struct SignalList {
    std::vector<int> numbers;
    std::vector<std::string> unusable;  ///< Unknown names, and SIGKILL and SIGSTOP, which cannot be handled.
};
/// "SIGTERM,SIGUSR1". An unusable name is not an error, as in torchrun.
SignalList signal_list(std::string_view text);

/// 1/true/t/yes/y and 0/false/f/no/n in any case.
std::optional<bool> truth(std::string_view text);

/// "torch,transformers.models".
bool are_modules(std::string_view text);

/// " (nearest: node)", or nothing if none of the choices is like it.
std::string nearest_in_brackets(std::string_view value, const std::vector<std::string>& choices);

/// 128 random bits as 8-4-4-4-12 hexadecimal digits (a version 4 UUID).
std::string random_uuid();

/// Stores what was read of a value in `field`. Returns `accepted`, which describes the values that are accepted, where
/// nothing was read.
template <class Read, class Field>
std::optional<std::string> read_into(const Read& read, Field& field, std::string accepted) {
    if (!read) return accepted;
    field = static_cast<Field>(*read);
    return std::nullopt;
}

}  // namespace muster::launcher
