#include "agent/process/signal_handlers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

bool status_handles_signal(std::string_view status, int signal) {
    constexpr std::string_view caught = "SigCgt:";
    for (const auto line : split(status, '\n')) {
        if (!line.starts_with(caught)) continue;
        const auto digits = trim(line.substr(caught.size()));
        std::uint64_t mask = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
        return read.ec == std::errc{} && signal >= 1 && signal <= 64 && ((mask >> (signal - 1)) & 1U) != 0;
    }
    return false;
}

int ignored_by_workers(int preemption_signal) {
    constexpr std::array notices{SIGUSR1, SIGUSR2, SIGXCPU};
    return std::ranges::find(notices, preemption_signal) != notices.end() ? preemption_signal : 0;
}

bool handles_signal(std::int32_t pid, int signal) {
    return status_handles_signal(read_file(cat("/proc/", pid, "/status")), signal);
}

}  // namespace muster::agent
