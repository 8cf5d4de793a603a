#include "agent/evidence/torch_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// 0: no such file.
std::int64_t written_ns(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || facts.st_size == 0) return 0;
    return facts.st_mtim.tv_sec * 1'000'000'000LL + facts.st_mtim.tv_nsec;
}

std::string first_of(const std::map<std::string, std::string>& environment, std::initializer_list<const char*> names) {
    for (const char* const name : names)
        if (const auto found = environment.find(name); found != environment.end()) return found->second;
    return {};
}

}  // namespace

TorchDump::TorchDump(const std::map<std::string, std::string>& environment)
    : pipe_prefix_(first_of(environment, {"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"})),
      file_prefix_(first_of(environment, {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})) {}

void TorchDump::ask(std::int32_t rank, Instant now) {
    if (pipe_prefix_.empty() || asked_.contains(rank)) return;
    const auto path = cat(pipe_prefix_, rank, ".pipe");
    // Without a reader this fails at once. What is no FIFO is nothing of torch's.
    const FileDescriptor pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat facts {};
    if (!pipe.valid() || ::fstat(pipe.get(), &facts) != 0 || !S_ISFIFO(facts.st_mode)) return;
    const auto before = file_prefix_.empty() ? 0 : written_ns(cat(file_prefix_, rank));
    if (::write(pipe.get(), "1\n", 2) == 2) asked_[rank] = {now, before};
}

std::vector<std::string> TorchDump::poll(Instant now) {
    std::vector<std::string> lines;
    for (auto at = asked_.begin(); at != asked_.end();) {
        const auto& [rank, asked] = *at;
        const auto path = cat(file_prefix_, rank);
        const auto written = file_prefix_.empty() ? 0 : written_ns(path);
        const bool come = written > asked.written_ns;
        if (!come && now - asked.at < limit) {
            ++at;
            continue;
        }
        if (file_prefix_.empty())
            lines.push_back(cat("torch's flight recorder of rank ", rank,
                                " was asked for its dump; set TORCH_NCCL_DEBUG_INFO_TEMP_FILE to learn its path"));
        else if (come)
            lines.push_back(cat("torch's flight record of rank ", rank, ": ", path));
        else
            lines.push_back(cat("torch's flight recorder of rank ", rank, " did not write ", path, " within ",
                                muster::describe(limit)));
        at = asked_.erase(at);
    }
    return lines;
}

}  // namespace muster::agent
