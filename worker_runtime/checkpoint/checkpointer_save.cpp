// Saving: makes a copy in memory, which the save worker writes to disk or gives to the agent only.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/checkpointer_body.h"
#include "worker_runtime/checkpoint/format/safetensors.h"
#include "worker_runtime/checkpoint/replicas.h"

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view advice =
    "; make it the same before the save (broadcast it from rank 0), give each rank's part as a shard, or leave "
    "verify_replicas off to save rank 0's";

/// Finds the elements of a piece in this rank's tensors.
class Sources {
  public:
    explicit Sources(const std::vector<StateTensor>& tensors) {
        for (const auto& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
    }
    [[nodiscard]] const std::byte* find(const Piece& piece) const {
        for (auto [at, end] = by_name_.equal_range(piece.tensor); at != end; ++at) {
            const auto& tensor = *at->second;
            const auto first = tensor.placement == Placement::sharded ? tensor.begin : 0;
            if (tensor.placement == Placement::sharded && first != piece.begin) continue;
            return static_cast<const std::byte*>(tensor.data) + (piece.begin - first) * size_of(piece.type);
        }
        return nullptr;
    }

  private:
    std::multimap<std::string_view, const StateTensor*> by_name_;
};

Result<void> check_save(std::int64_t step, const CheckpointState& state) {
    if (step < 0) return Error{Errc::invalid_argument, cat("a checkpoint of step ", step, "; 0 or more")};
    return check_state(state);
}

}  // namespace

RankFile CheckpointerBody::plan(std::int64_t step, const CheckpointState& state) const {
    RankFile file;
    file.step = step;
    file.round = identity_.round;
    file.job = identity_.job;
    file.rank = world_.rank();
    file.world = world_.size();
    file.rank_value = state.rank_value;
    file.opening = opening_;
    file.save = saves_;
    file.directory_word = word_;
    if (world_.rank() == 0) file.values = state.values;
    lay_out(file, own_pieces(tensors_of(state, world_.rank()), options_.replicas, world_.rank(), world_.size()));
    return file;
}

Result<void> CheckpointerBody::reserve(const CheckpointState& state) {
    if (auto fine = check_state(state); !fine) return fine;
    if (auto done = worker_->finish(); !done) return done;
    if (copies_) copies_->finish();
    const auto bytes = in_whole_blocks(plan(0, state).size_bytes);
    for (std::size_t i = 0; i < (snapshots_ ? memories_.size() : 1); ++i) {
        if (auto made = memories_[i].grow(bytes); !made) return made;
    }
    return {};
}

/// Chooses the next memory in turn. If there is too little memory for it, chooses the one written longest ago. A memory
/// that is still being sent to the next node is the last choice: this waits for it, because losing the save would be
/// worse.
Result<void> CheckpointerBody::choose_room(std::uint64_t bytes) {
    auto made = memories_[turn_].grow(bytes);
    for (std::size_t i = 1; !made && i < memories_.size(); ++i) {
        const auto other = (turn_ + i) % memories_.size();
        if (memories_[other].size_bytes() < bytes || is_sent(other)) continue;
        turn_ = other;
        return {};
    }
    if (made || !copies_ || sent_ == memories_.size() || memories_[sent_].size_bytes() < bytes) return made;
    copies_->finish();
    turn_ = sent_;
    return {};
}

/// A collective: decides whether all ranks begin a save and whether they send copies. No rank begins if one is busy. A
/// save goes to the shared directory if any rank finds that it must. Errors: this rank's state cannot be saved (the
/// other ranks report that one failed), or compared replicas differ.
Result<CheckpointerBody::Go> CheckpointerBody::may_begin(std::int64_t step, const CheckpointState& state, bool busy,
                                                         Duration patience) {
    enum : std::uint8_t { go_on = 0, leave_out = 1, refuse = 2 };
    const auto arguments = check_save(step, state);
    std::array<std::uint8_t, 4> votes{!arguments ? refuse
                                      : busy     ? leave_out
                                                 : go_on,
                                      copies_idle() ? go_on : leave_out, shared_is_due() ? leave_out : go_on,
                                      options_.verify_replicas ? leave_out : go_on};
    MUSTER_TRY(world_.run(all_reduce(buffer(std::span<std::uint8_t>(votes)), ReduceOp::max), patience));
    if (!arguments) return arguments.error();
    if (votes[0] == refuse)
        return Error{Errc::invalid_argument, "another rank's state cannot be saved: see the error of that rank"};
    if (votes[0] == go_on && votes[3] != go_on) {
        const auto replicas = MUSTER_TRY(replicas_of(state.tensors));
        MUSTER_TRY(compare_replicas(world_, replicas, advice, options_.persist_timeout));
    }
    return Go{.begin = votes[0] == go_on, .copy = votes[1] == go_on, .shared = votes[2] != go_on};
}

/// Skipped saves count too, so that saves to local disks only never delay the shared directory. After a failed save the
/// next one goes to the shared directory: it then has what a broken disk lacks, and a shared directory that works again
/// need not wait for k saves.
bool CheckpointerBody::shared_is_due() const {
    return options_.local_directory.empty() || until_shared_ == 0 || worker_->last_failed();
}

Result<void> CheckpointerBody::save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy) {
    const auto began = Clock::now();
    // If the previous save still hangs after this wait, this save is skipped on all ranks. A snapshot takes only a
    // moment, so it must not cause a save to be skipped: with a snapshot at every step all saves might be.
    if (when_busy == WhenBusy::wait || worker_->in_memory_only()) (void)worker_->finish();
    if (when_busy == WhenBusy::wait && !shared_is_due() && copies_) copies_->finish();
    // Another rank may still wait as above, for longer than an operation of training may take: rank 0 removes old
    // checkpoints, and one rank's copy may be larger than another's.
    const auto patience =
        when_busy == WhenBusy::wait ? std::max(world_.timeout(), options_.persist_timeout) : world_.timeout();
    auto begin = MUSTER_TRY(may_begin(step, state, !worker_->idle(), patience));
    until_shared_ = std::max(0, until_shared_ - 1);
    // A save to local disks only needs its copy on the next node like a snapshot, because a lost node loses its disk
    // too.
    if (begin.begin && (begin.shared || begin.copy)) {
        if (begin.shared) until_shared_ = options_.shared_every - 1;
        Snapshot snapshot;
        snapshot.file.step = step;
        snapshot.to_shared = begin.shared;
        snapshot.to_next_node = begin.copy;
        hand_over(std::move(snapshot), state, began);
        return {};
    }
    const std::string why = cat("the previous save was still being written",
                                !begin.shared && copies_ ? ", or being copied to the next node" : "");
    log(world_.rank() == 0 ? LogLevel::warning : LogLevel::info, "checkpoint of step ", step, " was skipped: ", why);
    SaveReport report;
    report.step = step;
    report.trouble = why;
    report.blocked_ms = milliseconds_since(began);
    worker_->leave_out(std::move(report));
    return {};
}

Result<void> CheckpointerBody::snapshot(std::int64_t step, const CheckpointState& state) {
    const auto began = Clock::now();
    // Every snapshot must go to the next node: else survivors would drop the step of which it has a lost rank's part.
    const bool busy =
        !snapshots_ || !worker_->idle() || !copies_idle() || began < last_snapshot_ + options_.snapshot_interval;
    auto begin = MUSTER_TRY(may_begin(step, state, busy, world_.timeout()));
    if (!begin.begin) return {};
    last_snapshot_ = began;
    Snapshot snapshot;
    snapshot.file.step = step;
    snapshot.to_disk = false;
    snapshot.to_next_node = true;
    hand_over(std::move(snapshot), state, began);
    return {};
}

/// Failures from here on are in the report.
void CheckpointerBody::hand_over(Snapshot snapshot, const CheckpointState& state, Instant began) {
    if (worker_->gave_last()) turn_ = (turn_ + 1) % memories_.size();
    if (is_sent(turn_)) turn_ = (turn_ + 1) % memories_.size();
    ++saves_;
    snapshot.file = plan(snapshot.file.step, state);
    if (auto copied = copy(state, snapshot); !copied) snapshot.failure = copied.error();
    if (snapshot.to_next_node) sent_ = turn_;
    snapshot.taken = Clock::now();
    snapshot.report.step = snapshot.file.step;
    snapshot.report.bytes = snapshot.file.size_bytes;
    snapshot.report.blocked_ms = milliseconds_since(began);
    worker_->begin(std::move(snapshot));
}

Result<void> CheckpointerBody::copy(const CheckpointState& state, Snapshot& snapshot) {
    const auto bytes = snapshot.file.size_bytes;
    if (auto chosen = choose_room(in_whole_blocks(bytes)); !chosen) return chosen;
    auto& room = memories_[turn_];
    snapshot.memory = {room.data(), in_whole_blocks(bytes)};
    snapshot.descriptor = &room.descriptor();
    std::memset(room.data(), 0, safetensors_length_bytes);  // no valid rank file until the copy is sealed
    const auto tensors = tensors_of(state, world_.rank());
    const Sources sources(tensors);
    for (const auto& [piece, offset, crc] : snapshot.file.pieces) {
        if (piece.count > 0) std::memcpy(room.data() + offset, sources.find(piece), piece.size_bytes());
    }
    std::memset(room.data() + bytes, 0, in_whole_blocks(bytes) - bytes);
    return {};
}

Result<void> CheckpointerBody::finish() {
    if (auto done = worker_->finish(); !done) return done;
    const auto trouble = worker_->newest_trouble();
    return trouble.empty() ? Result<void>() : Error{Errc::io, cat("the newest checkpoint was not saved: ", trouble)};
}

}  // namespace muster::runtime
