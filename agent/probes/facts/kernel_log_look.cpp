#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

void look_at_kernel_log() {
    constexpr std::size_t lines_max = 200, line_bytes_max = 512;
    const FileDescriptor log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!log.valid()) return print_fact("unreadable", {{"text", std::strerror(errno)}});
    std::deque<std::string> lines;  // the newest
    std::array<char, 8192> record{};
    for (;;) {
        const auto size = ::read(log.get(), record.data(), record.size());
        if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // records were overwritten meanwhile
        if (size <= 0) break;
        std::string line(record.data(), static_cast<std::size_t>(size));
        line.resize(std::min({line.find('\n'), line.size(), line_bytes_max}));
        if (line.find("NVRM: Xid") == std::string::npos) continue;
        lines.push_back(std::move(line));
        if (lines.size() > lines_max) lines.pop_front();
    }
    for (const auto& line : lines) print_fact("line", {{"text", line}});
}

}  // namespace muster::agent
