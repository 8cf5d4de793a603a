#include "agent/doctor/health_verdict.h"

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t reason_bytes_max = 512;

/// A process that the check left behind may have written more.
std::string_view first_line_of(std::string_view text) {
    return text.substr(0, text.find('\n'));
}

std::string last_line(std::string_view text) {
    text = trim(text);
    const auto line = text.substr(text.rfind('\n') + 1);
    const auto words = printable_line(trim(line));
    return std::string(front_of(words, reason_bytes_max));
}

}  // namespace

HealthVerdict read_health(std::string_view output, std::string_view limit) {
    using State = HealthVerdict::State;
    constexpr int not_executable = 126, not_found = 127;
    const bool has_begun = output.starts_with(health_begin_line);
    if (has_begun) output.remove_prefix(health_begin_line.size());
    if (!has_begun && output.starts_with("note ")) return {State::unknown, printable_line(trim(output.substr(5)))};
    const auto at = output.rfind(health_exit_line);
    int code = 0;
    if (at == std::string_view::npos ||
        !parse_number(trim(first_line_of(output.substr(at + health_exit_line.size()))), code))
        return {State::unknown, cat("it did not end within ", limit)};
    if (code == 0) return {State::healthy, {}};
    const auto reason = last_line(output.substr(0, at));
    if (code == not_executable || code == not_found)
        return {State::unknown, cat("it cannot be run: ", reason.empty() ? cat("exit code ", code) : reason)};
    return {State::sick, reason.empty() ? cat("exit code ", code) : reason};
}

}  // namespace muster::agent
