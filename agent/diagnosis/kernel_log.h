// Parses the kernel's messages about the end of a process (/dev/kmsg). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace muster::agent {

/// "Memory cgroup out of memory: Killed process 42 (python3) total-vm:..kB, anon-rss:..kB, ...".
struct OomKill {
    std::int32_t pid = 0;
    std::string program;
    std::int64_t resident_kib = -1;  ///< Resident pages of its own. -1: not given.
    bool in_group = false;           ///< True for a cgroup's limit, false for the host's memory.
};
/// "NVRM: Xid (PCI:0000:3b:00): 31, pid=42, name=python3, Ch 00000008, intr ...".
struct GpuError {
    std::int32_t pid = 0;  ///< 0: the driver names none.
    std::int32_t xid = 0;
    std::string device;  ///< "PCI:0000:3b:00"
};
/// "python3[42]: segfault at 0 ip 00007f.. sp 00007f.. error 4 in libfoo.so[7f..+1000]", or "traps: python3[42] general
/// protection fault ip:.. sp:.. error:0 in libfoo.so[..]".
struct MemoryFault {
    std::int32_t pid = 0;
    std::optional<std::uint64_t> address;
    std::string where;  ///< File being executed. Empty: not given.
};
/// "Memory failure: 0x12: Sending SIGBUS to python3:42 due to hardware memory corruption".
struct HardwareMemoryError {
    std::int32_t pid = 0;
};
using KernelEvent = std::variant<OomKill, GpuError, MemoryFault, HardwareMemoryError>;

/// Nothing for a line about something else. `record` is one read of /dev/kmsg ("6,1234,5678,-;text\n KEY=value\n") or
/// the text alone. Where a fault's line names a thread, its number need not be the process's.
std::optional<KernelEvent> parse_kernel_line(std::string_view record);

}  // namespace muster::agent
