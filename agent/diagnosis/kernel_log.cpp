#include "agent/diagnosis/kernel_log.h"

#include <charconv>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// The number right after `key`, or -1.
template <class T>
T number_after(std::string_view text, std::string_view key, int base = 10) {
    const auto at = text.find(key);
    T value{};
    if (at == std::string_view::npos) return static_cast<T>(-1);
    const auto* begin = text.data() + at + key.size();
    const auto [end, failure] = std::from_chars(begin, text.data() + text.size(), value, base);
    return failure == std::errc{} && end != begin ? value : static_cast<T>(-1);
}

/// What stands between `open` and the next `close`; empty if there is none.
std::string_view between(std::string_view text, std::string_view open, std::string_view close) {
    const auto from = text.find(open);
    if (from == std::string_view::npos) return {};
    const auto rest = text.substr(from + open.size());
    return rest.substr(0, rest.find(close));
}

std::optional<KernelEvent> out_of_memory(std::string_view text) {
    for (const std::string_view words : {"Killed process ", "Kill process "}) {
        const auto pid = number_after<std::int32_t>(text, words);
        if (pid <= 0) continue;
        OomKill kill;
        kill.pid = pid;
        kill.program = between(text.substr(text.find(words)), "(", ")");
        kill.resident_kib = number_after<std::int64_t>(text, "anon-rss:");
        kill.in_group = text.find("emory cgroup out of memory") != std::string_view::npos;
        return kill;
    }
    return std::nullopt;
}

std::optional<KernelEvent> gpu_error(std::string_view text) {
    const auto xid = text.find("Xid (");
    if (xid == std::string_view::npos) return std::nullopt;
    const auto rest = text.substr(xid);
    GpuError error;
    error.device = between(rest, "(", ")");
    error.xid = number_after<std::int32_t>(rest, "): ");
    error.pid = std::max(number_after<std::int32_t>(rest, "pid="), 0);
    if (error.xid <= 0) return std::nullopt;
    return error;
}

std::optional<KernelEvent> memory_fault(std::string_view text) {
    const bool segfault = text.find("]: segfault at ") != std::string_view::npos;
    const bool trap = text.starts_with("traps: ") && text.find(" ip:") != std::string_view::npos;
    if (!segfault && !trap) return std::nullopt;
    MemoryFault fault;
    // The name before the bracket may hold one itself.
    const auto end = segfault ? text.find("]: segfault at ") : text.find("] ");
    const auto open = text.substr(0, end).rfind('[');
    if (open == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
    if (!parse_number(text.substr(open + 1, end - open - 1), fault.pid)) return std::nullopt;
    if (segfault) {
        std::uint64_t address = 0;
        const auto digits = between(text, "segfault at ", " ");
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), address, 16);
        if (parsed.ec == std::errc{}) fault.address = address;
    }
    const auto in = text.rfind(" in ");
    if (in != std::string_view::npos && in > end) fault.where = between(text.substr(in), " in ", "[");
    return fault;
}

std::optional<KernelEvent> hardware_error(std::string_view text) {
    if (text.find("hardware memory corruption") == std::string_view::npos) return std::nullopt;
    const auto named = between(text, "SIGBUS to ", " due to");
    std::int32_t pid = 0;
    if (!parse_number(named.substr(named.rfind(':') + 1), pid)) return std::nullopt;
    return HardwareMemoryError{pid};
}

}  // namespace

std::optional<KernelEvent> parse_kernel_line(std::string_view record) {
    auto text = record.substr(0, record.find('\n'));
    // "priority,sequence,time,flags;" of /dev/kmsg; a text that is given alone has no such head.
    const auto head = text.find(';');
    if (head != std::string_view::npos && text.substr(0, head).find(' ') == std::string_view::npos)
        text.remove_prefix(head + 1);
    for (const auto parse : {out_of_memory, gpu_error, memory_fault, hardware_error})
        if (auto event = parse(text)) return event;
    return std::nullopt;
}

}  // namespace muster::agent
