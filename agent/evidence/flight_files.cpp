#include "agent/evidence/flight_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

// The runtime's take 260 KiB; what a worker gives is otherwise its own affair.
constexpr off_t flight_bytes_max = off_t{4} << 20;

/// Read and not mapped: a worker that shortens its file meanwhile must not end the agent by SIGBUS.
Result<std::string> read_memory(int memory) {
    struct stat facts {};
    if (::fstat(memory, &facts) != 0) return error_from_errno(errno, "stat a worker's flight record");
    if (!S_ISREG(facts.st_mode) || facts.st_size > flight_bytes_max)
        return Error{Errc::invalid_argument, "a worker sent an invalid flight record"};
    auto bytes = read_front(memory, static_cast<std::size_t>(facts.st_size));
    return bytes ? Result<std::string>(*std::move(bytes)) : error_from_errno(errno, "read a worker's flight record");
}

}  // namespace

Result<void> FlightFiles::keep(int memory, const std::string& path) {
    const auto bytes = MUSTER_TRY(read_memory(memory));
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (!file.valid()) return error_from_errno(errno, cat("write the flight record ", path));
    if (std::ranges::find(paths_, path) == paths_.end()) paths_.push_back(path);
    if (!write_whole(file.get(), bytes)) {
        Error error = error_from_errno(errno, cat("write the flight record ", path));
        ::unlink(path.c_str());  // half a record says less than none
        return error;
    }
    directory_ = std::filesystem::path(path).parent_path();
    return {};
}

void FlightFiles::remove_all() {
    for (const auto& path : paths_) ::unlink(path.c_str());
    paths_.clear();
    directory_.clear();
}

}  // namespace muster::agent
