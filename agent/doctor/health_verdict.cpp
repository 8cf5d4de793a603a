#include "agent/doctor/health_verdict.h"

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t reason_bytes_max = 512;

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
    const auto said = output.substr(0, output.find('\n'));
    if (said == "limit") return {State::unknown, cat("it did not end within ", limit)};
    for (const std::string_view refused : {"refused ", "note "})
        if (said.starts_with(refused)) return {State::unknown, printable_line(said.substr(refused.size()))};
    constexpr std::string_view ended = "exit ";
    int code = 0;
    if (!said.starts_with(ended) || !parse_number(said.substr(ended.size()), code))
        return {State::unknown, "muster-check ended without an answer"};
    if (code == 0) return {State::healthy, {}};
    const auto reason = last_line(output.substr(said.size()));
    if (code == not_executable || code == not_found)
        return {State::unknown, cat("it cannot be run: ", reason.empty() ? cat("exit code ", code) : reason)};
    return {State::sick, reason.empty() ? cat("exit code ", code) : reason};
}

}  // namespace muster::agent
