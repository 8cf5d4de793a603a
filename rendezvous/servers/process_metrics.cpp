#include "rendezvous/servers/process_metrics.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

/// Field 22 of /proc/self/stat, in ticks since the boot. The program's name, field 2, may contain blanks.
std::uint64_t start_ticks() {
    const auto stat = read_file("/proc/self/stat");
    const auto fields = split(std::string_view(stat).substr(stat.rfind(')') + 1), ' ');
    std::uint64_t ticks = 0;
    return fields.size() > 20 && parse_number(fields[20], ticks) ? ticks : 0;
}

/// When the host was started, in seconds since 1970.
std::uint64_t boot_time() {
    std::uint64_t seconds = 0;
    const auto stat = read_file("/proc/stat");
    for (const auto line : split(stat, '\n'))
        if (line.starts_with("btime ") && parse_number(line.substr(6), seconds)) return seconds;
    return 0;
}

/// Linux tells their number since 6.2. Before, they are counted, which takes some milliseconds for 10,000 connections.
std::int64_t open_file_count() {
    struct stat facts {};
    if (::stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0) return facts.st_size;
    std::error_code failure;
    const std::filesystem::directory_iterator files("/proc/self/fd", failure);
    return failure ? 0 : std::distance(begin(files), end(files));
}

}  // namespace

void add_process_metrics(MetricsPage& page) {
    using enum MetricKind;
    rusage used{};
    if (::getrusage(RUSAGE_SELF, &used) == 0)
        page.add_one("process_cpu_seconds_total", counter, "CPU time of this process.",
                     seconds(used.ru_utime) + seconds(used.ru_stime));
    const auto statm = read_file("/proc/self/statm");
    const auto fields = split(statm, ' ');
    std::uint64_t pages = 0;
    if (fields.size() > 1 && parse_number(fields[1], pages))
        page.add_one("process_resident_memory_bytes", gauge, "Memory of this process.",
                     pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
    if (const auto count = open_file_count(); count > 0)
        page.add_one("process_open_fds", gauge, "Open files and connections of this process.", count);
    rlimit files_max{};
    if (::getrlimit(RLIMIT_NOFILE, &files_max) == 0)
        page.add_one("process_max_fds", gauge, "The limit of process_open_fds.", files_max.rlim_cur);
    const auto ticks = start_ticks();
    const auto boot = boot_time();
    if (ticks > 0 && boot > 0)
        page.add_one(
            "process_start_time_seconds", gauge, "Start of this process, in seconds since 1970.",
            static_cast<double>(boot) + static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace muster::rendezvous
