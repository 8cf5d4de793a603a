#include "worker_runtime/flight/flight_sweep.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/core/flight_record.h"

namespace muster::runtime {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view extension = ".ring";

std::string prefix_of(const std::string& job) {
    std::string name = job.empty() ? "alone" : job;
    std::replace(name.begin(), name.end(), '/', '_');
    return cat("flight_", name, "_");
}

/// True if the file was written by a process of this host that has ended.
bool is_orphan(const fs::path& path) {
    FlightHeader header;
    const auto bytes = read_start_of_file(path, sizeof header);
    if (bytes.size() < sizeof header) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != flight_magic) return false;
    char host[sizeof header.host] = {};
    if (::gethostname(host, sizeof host - 1) != 0 || std::strncmp(host, header.host, sizeof host) != 0) return false;
    if (boot_id() != std::string_view(header.boot_id, ::strnlen(header.boot_id, sizeof header.boot_id))) return true;
    return ::kill(header.pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::string flight_file_name(const std::string& job, int rank) {
    return cat(prefix_of(job), rank, extension);
}

void sweep_flight_records(const std::string& folder, const std::string& job, int world) {
    const std::string prefix = prefix_of(job);
    std::error_code ignored;
    for (auto entry = fs::directory_iterator(folder, ignored); !ignored && entry != fs::directory_iterator();
         entry.increment(ignored)) {
        const std::string name = entry->path().filename();
        if (!name.starts_with(prefix) || !name.ends_with(extension)) continue;
        const std::string_view digits =
            std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - extension.size());
        int rank = 0;
        if (!parse_number(digits, rank) || rank < world || !is_orphan(entry->path())) continue;
        std::error_code gone;
        fs::remove(entry->path(), gone);
    }
}

}  // namespace muster::runtime
