#include "worker_runtime/checkpoint/save_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/core/step_record.h"

namespace muster::runtime {

namespace {

constexpr Duration commit_time_max = 60s;
/// Limits the memory used if take_reports() is never called.
constexpr std::size_t reports_max = 1024;

double milliseconds(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

/// Writes the checksums and the head, and returns the checksum of the whole file.
std::uint32_t seal(Snapshot& snapshot) {
    auto& file = snapshot.file;
    for (auto& stored : file.pieces) {
        stored.crc32c = crc32c(snapshot.memory.subspan(stored.offset, stored.piece.size_bytes()));
    }
    const auto head = encode_head(file);
    MUSTER_CHECK(head.size() == file.data_begin, head.size(), file.data_begin);
    std::memcpy(snapshot.memory.data(), head.data(), head.size());
    auto whole = crc32c(std::as_bytes(std::span(head)));
    for (const auto& stored : file.pieces) {
        whole = crc32c_combine(whole, stored.crc32c, stored.piece.size_bytes());
    }
    return whole;
}

}  // namespace

Result<std::unique_ptr<SaveWorker>> SaveWorker::start(Terms terms, std::unique_ptr<SaveBoard> board) {
    std::unique_ptr<SaveWorker> worker(new SaveWorker(std::move(terms), std::move(board)));
    worker->thread_ = MUSTER_TRY(start_thread("muster-save", [raw = worker.get()] { raw->run(); }));
    return worker;
}

SaveWorker::~SaveWorker() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

void SaveWorker::begin(Snapshot snapshot) {
    const std::lock_guard lock(mutex_);
    MUSTER_CHECK(!snapshot_, "a save is under way");
    if (snapshot.to_disk) left_out_.clear();  // a snapshot does not replace a skipped save
    snapshot_ = std::move(snapshot);
    changed_.notify_all();
}

bool SaveWorker::idle() const {
    const std::lock_guard lock(mutex_);
    return !snapshot_;
}

bool SaveWorker::in_memory_only() const {
    const std::lock_guard lock(mutex_);
    return snapshot_ && !snapshot_->to_disk;
}

bool SaveWorker::last_failed() const {
    const std::lock_guard lock(mutex_);
    return last_failed_;
}

Result<void> SaveWorker::finish() {
    std::unique_lock lock(mutex_);
    if (!snapshot_) return {};
    const auto until = snapshot_->taken + terms_.timeout + 2 * commit_time();
    if (changed_.wait_until(lock, until, [this] { return !snapshot_; })) return {};
    return Error{Errc::timed_out, cat("the save of step ", snapshot_->report.step,
                                      " has timed out; does the file system of ", terms_.directory, " hang?")};
}

Duration SaveWorker::commit_time() const {
    return std::min<Duration>(terms_.timeout, commit_time_max);
}

std::vector<SaveReport> SaveWorker::take_reports() {
    const std::lock_guard lock(mutex_);
    return std::exchange(reports_, {});
}

void SaveWorker::leave_out(SaveReport report) {
    {
        const std::lock_guard lock(mutex_);
        left_out_ = report.trouble;
    }
    add_report(std::move(report));
}

void SaveWorker::add_report(SaveReport report) {
    const std::lock_guard lock(mutex_);
    if (reports_.size() == reports_max) reports_.erase(reports_.begin());
    reports_.push_back(std::move(report));
}

std::string SaveWorker::newest_trouble() const {
    const std::lock_guard lock(mutex_);
    return left_out_.empty() ? newest_trouble_ : left_out_;
}

void SaveWorker::note(const KeptCheckpoint& checkpoint) {
    for (auto& each : terms_.known) {
        if (each.name == checkpoint.name) each = checkpoint;
    }
}

void SaveWorker::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return snapshot_ || stopping_; });
        if (!snapshot_) return;
        auto& snapshot = *snapshot_;  // not used by other threads until it is reset
        lock.unlock();
        if (!snapshot.to_disk) {
            if (auto given = seal_and_give(snapshot); !given)
                log(LogLevel::info, "no snapshot: ", given.error().context);
            lock.lock();
            snapshot_.reset();
            changed_.notify_all();
            continue;
        }
        local_failed_ = false;
        auto outcome = persist(snapshot);
        auto report = std::move(snapshot.report);
        report.persist_ms = milliseconds(std::chrono::steady_clock::now() - snapshot.taken);
        report.persisted = outcome.has_value();
        if (outcome) {
            if (terms_.local) terms_.local->whole(report.step);
            report.path = *outcome;
        } else {
            report.trouble = outcome.error().context;
            // Rank 0 has all ranks' failures; the other ranks' logs would only repeat them.
            log(terms_.rank == 0 ? LogLevel::warning : LogLevel::info, "checkpoint of step ", report.step,
                " was not saved: ", report.trouble, "; training continues, and the previous checkpoint is kept");
        }
        if (auto* const record = live_step_record(); record != nullptr)
            note_checkpoint(*record, report.step, report.persisted);
        const auto trouble = report.trouble;
        add_report(std::move(report));
        lock.lock();
        newest_trouble_ = trouble;
        last_failed_ = !trouble.empty() || local_failed_;
        snapshot_.reset();
        changed_.notify_all();
    }
}

Result<std::string> SaveWorker::persist(Snapshot& snapshot) {
    const auto deadline = snapshot.taken + terms_.timeout;
    const DraftName draft{.step = snapshot.file.step, .round = snapshot.file.round, .nonce = terms_.nonce};
    const auto own = write_own_file(snapshot, cat(terms_.directory, '/', to_string(draft)), deadline);
    ++saves_;
    if (terms_.rank != 0) {
        MUSTER_TRY(board_->publish(saves_ - 1, own));
        // Rank 0 begins no commit after the deadline, but a commit may take a while.
        return board_->await(saves_ - 1, deadline + commit_time());
    }
    auto outcome = finish_together(snapshot, draft, own, deadline);
    if (auto told = board_->announce(saves_ - 1, outcome); !told && outcome) {
        log(LogLevel::warning, "tell the other ranks of ", *outcome, ": ", told.error().context);
    }
    if (outcome && snapshot.to_shared) remove_old();
    return outcome;
}

/// Rank 0: collects all results and commits. Returns the place of the save.
Result<std::string> SaveWorker::finish_together(const Snapshot& snapshot, const DraftName& draft,
                                                const Result<std::uint32_t>& own, Instant deadline) {
    if (!snapshot.to_shared) {
        const auto all = board_->collect(saves_ - 1, own, deadline);
        return all ? Result<std::string>(terms_.local->folder()) : all.error();
    }
    const auto name = MUSTER_TRY(commit(draft, own, deadline));
    terms_.known.push_back({.name = name, .verified = true});
    return cat(terms_.directory, '/', to_string(name));
}

/// If the shared directory follows, a failing local disk is only a warning.
Result<void> SaveWorker::write_local(const Snapshot& snapshot, const Interruption& in_time) {
    if (!terms_.local) return {};
    auto written = terms_.local->put(snapshot.file, snapshot.memory, in_time);
    local_failed_ = !written;
    if (written || !snapshot.to_shared) return written;
    log(LogLevel::warning, "step ", snapshot.file.step, " is not on the local disk: ", written.error().context);
    return {};
}

std::int64_t SaveWorker::newest_local() const {
    return terms_.local ? terms_.local->newest() : -1;
}

std::vector<OfferedSnapshot> SaveWorker::take_local(std::size_t most) {
    return terms_.local ? terms_.local->take(most) : std::vector<OfferedSnapshot>();
}

void SaveWorker::release_local() {
    if (terms_.local) terms_.local->release();
}

/// Seals the copy and gives it to the agent. After that the copy survives the end of this process.
Result<std::uint32_t> SaveWorker::seal_and_give(Snapshot& snapshot) {
    gave_last_ = false;
    const bool to_next_node = terms_.copies != nullptr && snapshot.to_next_node;
    if (snapshot.failure) {
        if (to_next_node) terms_.copies->begin({}, snapshot.file.step);  // the other ranks wait for this rank's state
        return *snapshot.failure;
    }
    const auto checksum = seal(snapshot);
    if (to_next_node) terms_.copies->begin(snapshot.memory.first(snapshot.file.size_bytes), snapshot.file.step);
    gave_last_ = terms_.snapshots && terms_.snapshots->give(*snapshot.descriptor, snapshot.file.size_bytes,
                                                            snapshot.file.step, absolute_path(terms_.directory));
    return checksum;
}

Result<std::uint32_t> SaveWorker::write_own_file(Snapshot& snapshot, const std::string& folder, Instant deadline) {
    const auto checksum = seal_and_give(snapshot);
    if (!checksum) return checksum;
    const auto in_time = [deadline]() -> Result<void> {
        if (std::chrono::steady_clock::now() < deadline) return {};
        return Error{Errc::timed_out, "the disk is too slow for the save's timeout"};
    };
    MUSTER_TRY(write_local(snapshot, in_time));
    if (!snapshot.to_shared) return checksum;
    if (!terms_.refusal.empty()) return Error{Errc::permission_denied, terms_.refusal};
    MUSTER_TRY(make_folder(folder));
    const auto path = cat(folder, '/', rank_file_name(terms_.rank));
    MUSTER_TRY(write_new_file(path, snapshot.memory, snapshot.file.size_bytes, in_time));
    return checksum;
}

Result<CheckpointName> SaveWorker::commit(const DraftName& draft, const Result<std::uint32_t>& own, Instant deadline) {
    const auto folder = cat(terms_.directory, '/', to_string(draft));
    const auto checksums = board_->collect(saves_ - 1, own, deadline);
    if (!terms_.claim) return Error{Errc::permission_denied, terms_.refusal};
    // The draft stays after a peer was lost: the next round may find it complete.
    if (!checksums && checksums.error().code == Errc::cancelled) return checksums.error();
    auto completed = checksums ? complete_draft(folder, *checksums) : checksums.error();
    if (!completed) {
        discard(terms_.directory, to_string(draft));
        return completed.error();
    }
    if (std::chrono::steady_clock::now() >= deadline) {
        discard(terms_.directory, to_string(draft));
        return Error{Errc::timed_out, "not all parts were on disk within the timeout"};
    }
    auto name = commit_draft(terms_.directory, draft, *terms_.claim);
    // `refused` means that another claimant now owns the directory, and the draft with it.
    if (!name && name.error().code != Errc::refused) discard(terms_.directory, to_string(draft));
    return name;
}

void SaveWorker::remove_old() {
    for (const auto& name : expendable(terms_.known, terms_.retention)) {
        discard(terms_.directory, to_string(name));
        std::erase_if(terms_.known, [&](const KeptCheckpoint& each) { return each.name == name; });
    }
}

}  // namespace muster::runtime
