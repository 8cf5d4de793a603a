// Finds a core dump: /proc/sys/kernel/core_pattern applied to one process (core(5)). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::agent {

/// What is known of the dead process; it ran as the agent's user and, unless it changed it, in the agent's directory.
struct DumpedProcess {
    std::int32_t pid = 0;
    std::int32_t signal = 0;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::string host;
    std::string directory;
};

struct CoreDumpPlace {
    std::string pattern;  ///< A path in which '*' replaces unknown parts. Empty: a program received the dump.
    std::string words;    ///< Text for the report if there is no path: "given to ...: coredumpctl info 42".
};

/// `pattern`: the content of core_pattern; `uses_pid`: that of core_uses_pid.
CoreDumpPlace core_dump_place(std::string_view pattern, bool uses_pid, const DumpedProcess& process);

}  // namespace muster::agent
