#include "launcher/node/gpu_job_map.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

namespace {

/// Another launcher holds the lock while it replaces a few small files.
constexpr Duration lock_limit = 1s;
constexpr std::size_t file_bytes_max = 64 << 10;

/// The lock ends with the descriptor. Invalid with errno. The directory itself is locked, so that only files of GPUs
/// lie in it. (Linux locks a directory of NFS for this host alone, where all writers of these files are.)
FileDescriptor lock_directory(const std::string& directory) {
    FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto last = std::chrono::steady_clock::now() + lock_limit;
    while (folder.valid() && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return {};
        if (std::chrono::steady_clock::now() > last) {
            errno = ETIMEDOUT;
            return {};
        }
        ::poll(nullptr, 0, 5);
    }
    return folder;
}

/// The lines of a file, none if it does not exist. Nothing, with errno, if it cannot be read or is too large.
std::optional<std::vector<std::string>> lines_of(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file.valid() && errno == ENOENT) return std::vector<std::string>();
    if (!file.valid()) return std::nullopt;
    const auto text = read_front(file.get(), file_bytes_max);
    if (!text) return std::nullopt;
    errno = EFBIG;
    if (text->size() == file_bytes_max) return std::nullopt;
    std::vector<std::string> lines;
    for (const auto line : split(*text, '\n')) lines.emplace_back(line);
    if (lines.back().empty()) lines.pop_back();
    return lines;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const auto& line : lines) text += cat(line, '\n');
    return text;
}

}  // namespace

struct GpuJobMap::Shared {
    std::atomic<std::uint64_t> added{0};  ///< Bit n: GPU n has the line, which was added here.
};

std::string GpuJobMap::line_of(std::string_view job) {
    std::string line(job);
    std::ranges::replace_if(
        line, [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; }, '_');
    return line;
}

GpuJobMap::GpuJobMap(std::string directory, std::string_view job)
    : directory_(std::move(directory)), line_(line_of(job)), shared_(nullptr) {
    if (directory_.empty()) return;
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) shared_ = new (memory) Shared;
}

GpuJobMap::~GpuJobMap() {
    release();
    if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

Result<void> GpuJobMap::add(const std::vector<std::size_t>& gpus) {
    if (shared_ == nullptr || gpus.empty()) return {};
    const auto lock = lock_directory(directory_);
    if (!lock.valid() && errno == ENOENT) return {};
    if (!lock.valid()) return error_from_errno(errno, cat("open ", directory_));
    for (const auto gpu : gpus) {
        const auto path = cat(directory_, '/', gpu);
        auto lines = lines_of(path);
        if (!lines) return error_from_errno(errno, cat("read ", path));
        if (gpu >= gpus_max || std::ranges::find(*lines, line_) != lines->end()) continue;
        lines->push_back(line_);
        // Before the write: a kill in between leaves a line that the guardian looks for.
        shared_->added |= std::uint64_t{1} << gpu;
        if (auto written = replace_file(path, joined(*lines)); !written) {
            shared_->added &= ~(std::uint64_t{1} << gpu);
            return written;
        }
    }
    return {};
}

void GpuJobMap::release() {
    if (shared_ == nullptr || shared_->added == 0) return;
    // Whoever may read the directory can hold its lock for ever. A line that stays would name a job that is over.
    const auto lock = lock_directory(directory_);
    for (auto left = shared_->added.exchange(0); left != 0; left &= left - 1) {
        const auto path = cat(directory_, '/', std::countr_zero(left));
        auto lines = lines_of(path);
        if (!lines || std::erase(*lines, line_) == 0) continue;
        if (lines->empty())
            ::unlink(path.c_str());
        else
            static_cast<void>(replace_file(path, joined(*lines)));
    }
}

}  // namespace muster::launcher
