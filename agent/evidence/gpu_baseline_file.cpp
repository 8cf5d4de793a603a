#include "agent/evidence/gpu_baseline_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "rendezvous/base/system/lock_file.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// 64 GPUs with their UUIDs; what is longer is no file of ours.
constexpr std::size_t file_bytes_max = 16 * 1024;
/// Dead agents' files that are looked at. They are removed one by one, so that there are as many as died since.
constexpr int files_max = 100;

/// Whose agent lives cannot be opened so. Anybody may write to that directory, so the owner counts.
FileDescriptor open_own(const std::string& path, int flags) {
    auto file = open_locked(path, flags);
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return {};
    const bool ours = S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
    return ours ? std::move(file) : FileDescriptor();
}

GpuBaseline read_baseline(const FileDescriptor& file) {
    const auto text = read_front(file.get(), file_bytes_max).value_or(std::string());
    GpuBaseline baseline;
    for (const auto line : split(text, '\n')) {
        const auto words = split(line, ' ');
        std::uint64_t bytes = 0;
        if (words.size() == 2 && parse_number(words[1], bytes)) baseline[std::string(words[0])] = bytes;
    }
    return baseline;
}

}  // namespace

GpuBaselineFile::GpuBaselineFile(std::string directory)
    : directory_(std::move(directory)),
      prefix_(cat("muster-gpus.", ::geteuid(), '.')),
      path_(cat(directory_, '/', prefix_, ::getpid())) {}

GpuBaselineFile::~GpuBaselineFile() {
    if (file_.valid()) ::unlink(path_.c_str());
}

GpuBaseline GpuBaselineFile::take_over(const GpuBaseline& own) {
    GpuBaseline least;
    std::error_code failure;
    int looked_at = 0;
    for (std::filesystem::directory_iterator entry(directory_, failure), end; !failure && entry != end;
         entry.increment(failure)) {
        if (!entry->path().filename().string().starts_with(prefix_) || ++looked_at > files_max) continue;
        const auto file = open_own(entry->path(), 0);
        if (!file.valid()) continue;
        bool is_used = false;
        for (const auto& [uuid, bytes] : read_baseline(file)) {
            if (!own.contains(uuid)) continue;
            const auto [kept, added] = least.emplace(uuid, bytes);
            kept->second = std::min(kept->second, bytes);
            is_used = true;
        }
        // One about other GPUs is for the agent that runs on these.
        if (is_used) ::unlink(entry->path().c_str());
    }
    return least;
}

void GpuBaselineFile::keep(const GpuBaseline& baseline) {
    if (baseline.empty()) return;
    if (!file_.valid()) file_ = open_own(path_, O_CREAT);
    std::string text;
    for (const auto& [uuid, bytes] : baseline) text += cat(uuid, ' ', bytes, '\n');
    if (!file_.valid() || ::ftruncate(file_.get(), 0) != 0) return;
    if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        if (::ftruncate(file_.get(), 0) != 0) ::unlink(path_.c_str());
}

}  // namespace muster::agent
