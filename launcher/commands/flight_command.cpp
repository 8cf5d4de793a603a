#include "launcher/commands/commands.h"

#include <filesystem>

#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/core/flight_record.h"

namespace muster::launcher {

namespace {

constexpr std::string_view flight_usage =
    "usage: muster flight DIR...\n"
    "Says from the flight records (*.ring) in DIR which rank is missing from which collective.\n"
    "A failed or stopped job leaves them beside its logs; a running job keeps them in MUSTER_FLIGHT_DIR.\n";

/// A file is returned as given. A folder is searched recursively for rings.
std::vector<std::filesystem::path> find_rings(const std::string& argument) {
    std::error_code trouble;
    if (!std::filesystem::is_directory(argument, trouble)) return {argument};
    std::vector<std::filesystem::path> rings;
    const auto options = std::filesystem::directory_options::skip_permission_denied;
    for (auto entry = std::filesystem::recursive_directory_iterator(argument, options, trouble);
         !trouble && entry != std::filesystem::recursive_directory_iterator(); entry.increment(trouble)) {
        if (entry->path().extension() == ".ring") rings.push_back(entry->path());
    }
    return rings;
}

}  // namespace

int run_flight(const std::vector<std::string>& arguments) {
    if (asks_for_help(arguments)) return answer("flight", flight_usage);
    if (arguments.empty())
        return print_error("flight", exit_codes::usage, "the folder is missing; write muster flight DIR");
    std::vector<runtime::FlightRing> rings;
    for (const auto& argument : arguments) {
        const auto files = find_rings(argument);
        if (files.empty())
            return print_error("flight", exit_codes::usage, cat(argument, ": no flight record (*.ring) found"));
        for (const auto& path : files) {
            const auto bytes = read_start_of_file(path, runtime::flight_ring_bytes + 1);
            if (bytes.empty())
                return print_error(
                    "flight", exit_codes::usage,
                    cat(path.string(), ": cannot be read: it is missing, empty, no regular file, or not this user's"));
            auto ring = runtime::read_flight_ring(bytes);
            if (!ring) return print_error("flight", exit_codes::usage, cat(path.string(), ": ", ring.error().context));
            rings.push_back(std::move(*ring));
        }
    }
    return answer("flight", runtime::flight_report(rings));
}

}  // namespace muster::launcher
