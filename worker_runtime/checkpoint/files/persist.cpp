#include "worker_runtime/checkpoint/files/persist.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

namespace muster::runtime {

namespace {

/// The interval of checks for the end of rank 0 of the ended round, which may be on another host.
constexpr Duration check_interval = 50ms;

Instant now() {
    return std::chrono::steady_clock::now();
}

/// A mapped copy, readable in whole blocks as direct writes need it.
class Mapping {
  public:
    static Result<Mapping> of(const KeptCopy& copy) {
        struct stat facts {};
        if (::fstat(copy.memory.get(), &facts) != 0) return error_from_errno(errno, "look at a copy");
        const auto size = in_whole_blocks(copy.size_bytes);
        if (copy.size_bytes == 0 || static_cast<std::uint64_t>(facts.st_size) < size) {
            return Error{Errc::bad_frame, "a copy is shorter than its stated size"};
        }
        void* const place = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, copy.memory.get(), 0);
        if (place == MAP_FAILED) return error_from_errno(errno, "map a copy");
        return Mapping({static_cast<const std::byte*>(place), size});
    }
    Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Mapping& operator=(Mapping&&) = delete;
    ~Mapping() {
        if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    explicit Mapping(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::span<const std::byte> bytes_;
};

struct Part {
    Mapping memory;
    RankFile file;
};

/// The parts of one save on this node, by rank.
using Save = std::map<int, Part>;
/// Identifies a save: step, round, number, opening.
using SaveKey = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::string>;

std::map<SaveKey, Save> examine(const std::vector<KeptCopy>& copies) {
    std::map<SaveKey, Save> saves;
    for (const auto& copy : copies) {
        auto memory = Mapping::of(copy);
        auto file = memory ? read_whole(memory->bytes().first(copy.size_bytes)) : memory.error();
        if (!file) {
            log(LogLevel::warning, "a copy in memory is ignored: ", file.error().context);
            continue;
        }
        const SaveKey key(file->step, file->round, file->save, file->opening);
        const int rank = file->rank;
        saves[key].emplace(rank, Part{std::move(*memory), std::move(*file)});
    }
    return saves;
}

/// Returns the newest step in the heads of the copies; nothing if a head cannot be read, as it may be of any step.
std::optional<std::int64_t> newest_step_of(const std::vector<KeptCopy>& copies) {
    std::int64_t newest = -1;
    for (const auto& copy : copies) {
        const auto memory = Mapping::of(copy);
        if (!memory) return std::nullopt;
        const auto bytes = memory->bytes().first(copy.size_bytes);
        const auto file = parse_rank_file({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, bytes.size());
        if (!file) return std::nullopt;
        newest = std::max(newest, file->step);
    }
    return newest;
}

/// Returns the newest checkpoint's step, or -1 if there is none.
Result<std::int64_t> newest_on_disk(const std::string& directory) {
    auto listing = MUSTER_TRY(list_directory(directory));
    return listing.checkpoints.empty() ? -1 : listing.checkpoints.front().step;
}

/// Writes one save to disk.
class SnapshotWriter {
  public:
    SnapshotWriter(const PersistTerms& terms, DirectoryClaim& claim) : terms_(terms), claim_(claim) {}

    /// Writes the parts of `save`. The result has step -1 if the disk has the save already.
    Result<Persisted> bring(const Save& save);

  private:
    Result<void> make_draft(const std::string& folder);
    Result<void> write(const Part& part, const std::string& folder);
    /// Writes this node's parts of `save` into `folder` and flushes it.
    Result<void> write_all(const Save& save, const std::string& folder);
    /// Errors: the deadline has passed, or another round has the directory, so that a job never waits for the disk.
    Result<void> go_on();

    const PersistTerms& terms_;
    DirectoryClaim& claim_;
};

Result<void> SnapshotWriter::go_on() {
    if (now() >= terms_.deadline) return Error{Errc::timed_out, "the disk is too slow for the remaining time"};
    return claim_.exclusively([] { return Result<void>(); });
}

/// Waits until rank 0 has ended, maybe a little later than the workers of this node: until then it owns the draft.
Result<void> SnapshotWriter::make_draft(const std::string& folder) {
    while (true) {
        auto made = claim_.exclusively([&] { return make_folder(folder); });
        if (made || made.error().code != Errc::already_exists || now() >= terms_.deadline) return made;
        std::this_thread::sleep_for(check_interval);
    }
}

Result<void> SnapshotWriter::write(const Part& part, const std::string& folder) {
    const auto path = cat(folder, '/', rank_file_name(part.file.rank));
    if (exists(path)) {
        const auto there = read_rank_file(path);
        if (there && *there == part.file && verify_rank_file(path)) return flush_file(path);
        // The file is partial: the worker ended while writing it.
        if (::unlink(path.c_str()) != 0) return error_from_errno(errno, cat("remove ", path));
    }
    return write_new_file(path, part.memory.bytes(), part.file.size_bytes, [this] { return go_on(); });
}

/// If another node has finished the draft, its folder has its final name, and this node's write fails but lacks
/// nothing.
std::optional<Persisted> finished_by_another(const std::string& directory, std::int64_t step) {
    const auto newest = newest_on_disk(directory);
    if (!newest || *newest < step) return std::nullopt;
    if (*newest > step) return Persisted();
    return Persisted{.step = step, .checkpoint = CheckpointName{.step = step}};
}

Result<void> SnapshotWriter::write_all(const Save& save, const std::string& folder) {
    for (const auto& [rank, part] : save) {
        if (auto written = write(part, folder); !written) return written.error();
    }
    return flush_folder(folder);
}

Result<Persisted> SnapshotWriter::bring(const Save& save) {
    const auto& file = save.begin()->second.file;
    if (MUSTER_TRY(newest_on_disk(terms_.directory)) >= file.step) return Persisted();
    const DraftName draft{.step = file.step, .round = file.round, .nonce = file.opening};
    const auto folder = cat(terms_.directory, '/', to_string(draft));
    if (auto made = make_draft(folder); !made) return made.error();
    if (auto written = write_all(save, folder); !written) {
        // If this node's parts existed before, another node may finish the draft while they are verified here.
        if (const auto done = finished_by_another(terms_.directory, file.step)) return *done;
        return written.error();
    }
    auto finished = finish_draft(terms_.directory, draft, claim_, [this] { return go_on(); });
    if (finished) return Persisted{.step = file.step, .checkpoint = *finished};
    // Parts of other nodes are missing or partial, or another node has just finished the draft.
    if (const auto done = finished_by_another(terms_.directory, file.step)) return *done;
    const auto code = finished.error().code;
    if (code == Errc::not_found || code == Errc::bad_frame) return Persisted{.step = file.step};
    return finished.error();
}

Result<Persisted> bring_newest(const PersistTerms& terms, std::vector<KeptCopy> copies) {
    auto saves = examine(copies);
    copies.clear();
    if (saves.empty()) return Error{Errc::bad_frame, "no copy in memory is complete"};
    // If a save is complete here, any newer save lacks ranks that had not reached its step.
    for (auto at = saves.rbegin(); at != saves.rend(); ++at) {
        if (at->second.size() != static_cast<std::size_t>(at->second.begin()->second.file.world)) continue;
        saves.erase(std::next(saves.find(at->first)), saves.end());
        break;
    }
    const auto& newest = saves.rbegin()->second.begin()->second.file;
    auto claim = MUSTER_TRY(DirectoryClaim::visit(terms.directory, {.job = newest.job, .round = terms.round}));
    SnapshotWriter bringer(terms, claim);
    Persisted best;
    for (auto at = saves.rbegin(); at != saves.rend(); ++at) {
        auto brought = MUSTER_TRY(bringer.bring(at->second));
        if (brought.checkpoint || brought.step < 0) return best.step < 0 || brought.checkpoint ? brought : best;
        if (best.step < 0) best = brought;
    }
    return best;
}

/// Waits until the other nodes have written their parts; the last of them makes the checkpoint.
Result<Persisted> wait_for_others(const PersistTerms& terms, const Persisted& own) {
    while (true) {
        const auto newest = newest_on_disk(terms.directory);
        if (newest && *newest > own.step) return Persisted();
        if (newest && *newest == own.step)
            return Persisted{.step = own.step, .checkpoint = CheckpointName{.step = own.step}};
        if (now() >= terms.deadline)
            return Error{Errc::timed_out, cat("this node's part of step ", own.step,
                                              " is on disk, but those of other nodes are missing")};
        std::this_thread::sleep_for(check_interval);
    }
}

}  // namespace

Result<Persisted> persist_copies(const PersistTerms& terms, std::vector<KeptCopy> copies) {
    const auto in_memory = newest_step_of(copies);
    const auto on_disk = newest_on_disk(terms.directory);
    if (in_memory && on_disk && *on_disk >= *in_memory) return Persisted();
    if (now() >= terms.deadline) return Error{Errc::timed_out, "no time is left (--persist-timeout)"};
    auto brought = bring_newest(terms, std::move(copies));
    const bool in_part = brought && brought->step >= 0 && !brought->checkpoint;
    return in_part && terms.wait_for_others ? wait_for_others(terms, *brought) : brought;
}

}  // namespace muster::runtime
