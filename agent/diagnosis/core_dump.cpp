#include "agent/diagnosis/core_dump.h"

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

CoreDumpPlace given_to(std::string_view command, const DumpedProcess& process) {
    const auto program = command.substr(0, command.find(' '));
    if (program.find("systemd-coredump") != std::string_view::npos)
        return {{}, cat("given to systemd-coredump: coredumpctl info ", process.pid)};
    if (program.find("apport") != std::string_view::npos) return {{}, "given to apport: see /var/crash"};
    return {{}, cat("given to ", program)};
}

std::string expand(char specifier, const DumpedProcess& process) {
    switch (specifier) {
        case '%': return "%";
        case 'p':
        case 'P': return cat(process.pid);  // %P: in the first namespace; ours as a rule
        case 'u': return cat(process.uid);
        case 'g': return cat(process.gid);
        case 's': return cat(process.signal);
        case 'h': return process.host;
        default: return "*";  // time, thread, name: the dead do not tell
    }
}

}  // namespace

CoreDumpPlace core_dump_place(std::string_view pattern, bool uses_pid, const DumpedProcess& process) {
    pattern = trim(pattern);
    if (pattern.starts_with('|')) return given_to(trim(pattern.substr(1)), process);
    std::string name;
    bool pid_named = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%' || i + 1 == pattern.size()) {
            name += pattern[i];
            continue;
        }
        const char specifier = pattern[++i];
        pid_named = pid_named || specifier == 'p';
        name += expand(specifier, process);
    }
    if (uses_pid && !pid_named) name += cat('.', process.pid);
    return {name.starts_with('/') ? name : cat(process.directory, '/', name), {}};
}

}  // namespace muster::agent
