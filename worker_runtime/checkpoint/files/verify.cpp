#include "worker_runtime/checkpoint/files/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/format/crc32c.h"

namespace muster::runtime {

namespace {

constexpr std::size_t read_ahead_bytes = 8u << 20;
constexpr int buffer_count = 3;

struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
};

/// Some bytes of the file, or the reason why there are no more.
struct Chunk {
    std::unique_ptr<std::byte, FreeMemory> memory;
    std::size_t begin = 0, size = 0;  ///< the requested bytes, in `memory`
    Result<void> outcome;
    bool last = false;
};

/// A queue of chunks between the reading thread and the consumer; a second one returns empty chunks.
class Belt {
  public:
    void put(Chunk chunk) {
        const std::lock_guard lock(mutex_);
        chunks_.push_back(std::move(chunk));
        changed_.notify_all();
    }
    std::optional<Chunk> take() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !chunks_.empty() || closed_; });
        if (chunks_.empty()) return std::nullopt;
        auto chunk = std::move(chunks_.front());
        chunks_.erase(chunks_.begin());
        return chunk;
    }
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Chunk> chunks_;
    bool closed_ = false;
};

class RangeReader {
  public:
    RangeReader(std::string path, const std::vector<ByteRange>& ranges) : path_(std::move(path)), ranges_(ranges) {}

    Result<void> open() {
        file_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
        if (!file_.valid() && errno == EINVAL) file_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        if (!file_.valid()) return error_from_errno(errno, cat("open ", path_));
        return {};
    }

    /// The reading thread: takes chunks from `empty`, fills them, and puts them into `full`.
    void run(Belt& empty, Belt& full) {
        for (const auto& range : ranges_) {
            for (auto at = range.begin; at < range.end;) {
                auto chunk = empty.take();
                if (!chunk) return;
                const auto done = fill(*chunk, at, range.end);
                const bool failed = !chunk->outcome;
                full.put(std::move(*chunk));
                if (failed) return;
                at = done;
            }
        }
        if (auto chunk = empty.take()) {
            chunk->last = true;
            full.put(std::move(*chunk));
        }
    }

  private:
    /// Reads from the start of the block that contains `at`. Returns where the next chunk begins.
    std::uint64_t fill(Chunk& chunk, std::uint64_t at, std::uint64_t end) {
        const auto start = at / file_alignment * file_alignment;
        const auto wanted = std::min<std::uint64_t>(end - start, read_ahead_bytes);
        const auto rounded = in_whole_blocks(wanted);
        std::size_t got = 0;
        chunk.outcome = {};
        while (got < wanted) {
            const auto more =
                ::pread(file_.get(), chunk.memory.get() + got, rounded - got, static_cast<off_t>(start + got));
            if (more < 0 && errno == EINTR) continue;
            if (more < 0 && errno == EINVAL && give_up_direct(file_.get())) continue;
            if (more < 0) chunk.outcome = error_from_errno(errno, cat("read ", path_));
            if (more == 0) chunk.outcome = Error{Errc::bad_frame, cat(path_, " ends at byte ", start + got)};
            if (more <= 0) return at;
            got += static_cast<std::size_t>(more);
            if (got < wanted && got % file_alignment != 0) give_up_direct(file_.get());
        }
        chunk.begin = at - start;
        chunk.size = wanted - chunk.begin;
        return start + wanted;
    }

    std::string path_;
    const std::vector<ByteRange>& ranges_;
    FileDescriptor file_;
};

Result<void> use_chunks(Belt& empty, Belt& full, const ByteSink& sink) {
    while (true) {
        auto chunk = full.take();
        if (!chunk || chunk->last) return {};
        if (!chunk->outcome) return chunk->outcome;
        if (auto used = sink({chunk->memory.get() + chunk->begin, chunk->size}); !used) return used;
        empty.put(std::move(*chunk));
    }
}

}  // namespace

Result<void> read_ranges(const std::string& path, const std::vector<ByteRange>& ranges, const ByteSink& sink) {
    RangeReader reader(path, ranges);
    MUSTER_TRY(reader.open());
    Belt empty, full;
    for (int i = 0; i < buffer_count; ++i) {
        Chunk chunk;
        chunk.memory.reset(static_cast<std::byte*>(std::aligned_alloc(file_alignment, read_ahead_bytes)));
        if (!chunk.memory) return Error{Errc::limit_exceeded, cat("no memory to read ", path)};
        empty.put(std::move(chunk));
    }
    auto thread = MUSTER_TRY(start_thread("muster-read", [&] { reader.run(empty, full); }));
    auto used = use_chunks(empty, full, sink);
    empty.close();
    thread.join();
    return used;
}

Result<std::uint32_t> verify_rank_file(const std::string& path) {
    auto file = MUSTER_TRY(read_rank_file(path));
    std::uint32_t whole = 0, sum = 0;
    std::uint64_t at = 0;
    std::size_t next = 0;  // index of the current piece
    const auto sink = [&](std::span<const std::byte> bytes) -> Result<void> {
        whole = crc32c(bytes, whole);
        while (next < file.pieces.size()) {
            const auto& stored = file.pieces[next];
            const auto begin = std::max(at, stored.offset), end = stored.offset + stored.piece.size_bytes();
            const auto here = std::min<std::uint64_t>(end, at + bytes.size());
            if (begin < here) sum = crc32c(bytes.subspan(begin - at, here - begin), sum);
            if (end > at + bytes.size()) break;
            if (sum != stored.crc32c) {
                return Error{Errc::bad_frame, cat(path, ": tensor ", stored.piece.tensor, " is damaged (checksum)")};
            }
            sum = 0;
            ++next;
        }
        at += bytes.size();
        return {};
    };
    if (auto read = read_ranges(path, {{0, file.size_bytes}}, sink); !read) return read.error();
    return whole;
}

}  // namespace muster::runtime
