#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "muster/checkpoint.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/checkpoint/agreement.h"
#include "worker_runtime/checkpoint/durable_file.h"
#include "worker_runtime/checkpoint/folders.h"
#include "worker_runtime/checkpoint/loader.h"
#include "worker_runtime/checkpoint/memory_tier.h"
#include "worker_runtime/checkpoint/save_worker.h"
#include "worker_runtime/cpu/shared_segment.h"

namespace muster {

namespace runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// The agent sends it as soon as the channel is open.
constexpr Duration offer_wait = 5s;

double milliseconds_since(Instant then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

Result<CheckpointOptions> complete(CheckpointOptions options) {
    if (options.directory.empty()) {
        const char* const given = ::getenv("MUSTER_CHECKPOINT_DIR");
        options.directory = given != nullptr ? given : "";
    }
    if (options.directory.empty()) {
        return Error{
            Errc::invalid_argument,
            "no checkpoint directory: start the job with muster --checkpoint-dir DIR, or name one in the options"};
    }
    if (options.keep_last < 1) {
        return Error{Errc::invalid_argument, cat("keep_last is ", options.keep_last, "; at least 1 must be kept")};
    }
    if (options.keep_every < 0) {
        return Error{Errc::invalid_argument, cat("keep_every is ", options.keep_every, "; 0 or more")};
    }
    return options;
}

/// Where the elements of a piece are in this rank's tensors.
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

std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + file_alignment - 1) / file_alignment * file_alignment;
}

}  // namespace

class CheckpointerBody {
  public:
    CheckpointerBody(Communicator& world, Checkpointer::Identity identity, CheckpointOptions options,
                     std::shared_ptr<SnapshotLink> snapshots)
        : world_(world),
          identity_(std::move(identity)),
          options_(std::move(options)),
          snapshots_(std::move(snapshots)) {}

    Result<void> open(std::unique_ptr<Store> board);
    /// `place` makes the tensors that are filled; empty: `state` has them.
    Result<std::optional<LoadReport>> load(CheckpointState& state, const PlaceTensors& place);
    Result<void> save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy);
    Result<void> snapshot(std::int64_t step, const CheckpointState& state);
    Result<void> reserve(const CheckpointState& state);
    Result<void> finish();
    std::vector<SaveReport> reports() { return worker_->take_reports(); }
    [[nodiscard]] WhenBusy when_busy() const { return options_.when_busy; }

  private:
    Result<SaveWorker::Terms> take_directory() const;
    Result<bool> any_rank(bool here);
    Result<void> hand_over(std::int64_t step, const CheckpointState& state, bool to_disk, Instant began);
    Result<bool> try_memory(const MemoryTier& tier, CheckpointState& state, const PlaceTensors& place,
                            LoadReport& report);
    void take_texts(const Manifest& manifest, CheckpointState& state) const;
    RankFile plan(std::int64_t step, const CheckpointState& state) const;
    static Result<void> make_room(SharedSegment& room, std::uint64_t bytes);
    Result<void> copy(const CheckpointState& state, Snapshot& snapshot);
    static Result<void> place_tensors(const Manifest& manifest, CheckpointState& state, const PlaceTensors& place);
    static Result<Manifest> open_candidate(const std::string& folder, CheckpointState& state,
                                           const PlaceTensors& place);
    Result<bool> try_candidate(const CheckpointName& name, CheckpointState& state, const PlaceTensors& place,
                               LoadReport& report);

    Communicator& world_;
    Checkpointer::Identity identity_;
    CheckpointOptions options_;
    std::shared_ptr<SnapshotLink> snapshots_;
    /// Three where an agent keeps the last two copies: they must stay whole while the next one is made.
    std::array<SharedSegment, 3> memories_;
    std::size_t turn_ = 0;
    Instant last_snapshot_{};
    std::unique_ptr<SaveWorker> worker_;
};

Result<SaveWorker::Terms> CheckpointerBody::take_directory() const {
    SaveWorker::Terms terms;
    if (auto made = make_folders(options_.directory); !made) {
        return with_context(made.error(), "make the checkpoint directory");
    }
    auto claim = DirectoryClaim::take(options_.directory, {.job = identity_.job, .round = identity_.round});
    if (!claim) return claim.error();
    auto adopted = tidy_up(options_.directory, *claim);
    if (!adopted) return adopted.error();
    if (*adopted) {
        log(LogLevel::info, options_.directory, ": ", to_string(**adopted),
            " was complete but for its manifest, and is a checkpoint now");
    }
    auto listing = list_directory(options_.directory);
    if (!listing) return listing.error();
    for (const auto& name : listing->checkpoints) terms.known.push_back({.name = name});
    terms.nonce = claim->token();
    terms.claim = std::move(*claim);
    return terms;
}

Result<void> CheckpointerBody::open(std::unique_ptr<Store> board) {
    SaveWorker::Terms terms;
    Result<void> taken;
    if (world_.rank() == 0) {
        auto first = take_directory();
        if (first) {
            terms = std::move(*first);
        } else {
            taken = first.error();
        }
    }
    auto nonce = from_rank_0(world_, taken ? Result<std::string>(terms.nonce) : taken.error());
    if (!nonce) return nonce.error();
    terms.directory = options_.directory;
    terms.nonce = *nonce;
    terms.timeout = options_.persist_timeout;
    terms.retention = {.last = options_.keep_last, .every = options_.keep_every};
    terms.rank = world_.rank();
    terms.snapshots = snapshots_;
    auto worker =
        SaveWorker::start(std::move(terms), std::make_unique<SaveBoard>(std::move(board), world_.rank(), world_.size(),
                                                                        [this] { return world_.status(); }));
    if (!worker) return worker.error();
    worker_ = std::move(*worker);
    return {};
}

/// Where the caller makes its tensors from what is saved.
Result<void> CheckpointerBody::place_tensors(const Manifest& manifest, CheckpointState& state,
                                             const PlaceTensors& place) {
    if (!place) return {};
    state.tensors.clear();
    for (const auto& tensor : manifest.tensors) {
        state.tensors.push_back(StateTensor::whole(tensor.name, tensor.type, tensor.shape, nullptr));
    }
    auto placed = place(state.tensors);
    return placed ? check_state(state) : placed;
}

Result<Manifest> CheckpointerBody::open_candidate(const std::string& folder, CheckpointState& state,
                                                  const PlaceTensors& place) {
    auto manifest = read_manifest(folder);
    if (!manifest) return Error{Errc::bad_frame, manifest.error().context};
    if (auto placed = place_tensors(*manifest, state, place); !placed) return placed.error();
    if (auto match = match_model(*manifest, state.tensors); !match) return with_context(match.error(), folder);
    return manifest;
}

/// False: it is not whole, and `report` says why.
Result<bool> CheckpointerBody::try_candidate(const CheckpointName& name, CheckpointState& state,
                                             const PlaceTensors& place, LoadReport& report) {
    const auto folder = cat(options_.directory, '/', to_string(name));
    const auto skip = [&](const Error& why) {
        report.skipped.push_back(cat(to_string(name), ": ", why.context));
        if (world_.rank() == 0) {
            worker_->note({.name = name, .damaged = true});
            log(LogLevel::warning, "checkpoint ", folder, " is not whole and was passed over: ", why.context);
        }
        return false;
    };
    auto manifest = open_candidate(folder, state, place);
    auto agreed = all_agree(world_, manifest ? Result<void>() : manifest.error());
    if (!agreed) return agreed.error();
    if (!agreed->all_well) {
        if (agreed->failure.code != Errc::bad_frame) return agreed->failure;
        return skip(agreed->failure);
    }
    agreed = all_agree(world_, load_tensors(folder, *manifest, state.tensors));
    if (!agreed) return agreed.error();
    if (!agreed->all_well) return skip(agreed->failure);
    take_texts(*manifest, state);
    report.step = name.step;
    report.path = folder;
    if (world_.rank() == 0) worker_->note({.name = name, .verified = true});
    return true;
}

void CheckpointerBody::take_texts(const Manifest& manifest, CheckpointState& state) const {
    state.values = manifest.values;
    const auto rank = static_cast<std::size_t>(world_.rank());
    state.rank_value = rank < manifest.rank_values.size() ? manifest.rank_values[rank] : std::string();
}

/// False: it could not be read after all, and `report` says why.
Result<bool> CheckpointerBody::try_memory(const MemoryTier& tier, CheckpointState& state, const PlaceTensors& place,
                                          LoadReport& report) {
    auto fits = place_tensors(tier.manifest(), state, place);
    if (fits) fits = match_model(tier.manifest(), state.tensors);
    auto agreed = all_agree(world_, fits);
    if (!agreed) return agreed.error();
    if (!agreed->all_well) return agreed->failure;
    agreed = all_agree(world_, tier.load(world_, state.tensors));
    if (!agreed) return agreed.error();
    if (!agreed->all_well) {
        report.skipped.push_back(cat("the agents' copies of step ", tier.step(), ": ", agreed->failure.context));
        if (world_.rank() == 0) log(LogLevel::warning, report.skipped.back());
        return false;
    }
    take_texts(tier.manifest(), state);
    report.step = tier.step();
    report.from_memory = true;
    return true;
}

Result<std::optional<LoadReport>> CheckpointerBody::load(CheckpointState& state, const PlaceTensors& place) {
    const auto began = Clock::now();
    auto agreed = all_agree(world_, place ? Result<void>() : check_state(state));
    if (!agreed) return agreed.error();
    if (!agreed->all_well) return agreed->failure;
    worker_->finish();
    LoadReport report;
    std::vector<CheckpointName> candidates;
    if (world_.rank() == 0) {
        if (auto listing = list_directory(options_.directory)) candidates = listing->checkpoints;
    }
    auto tier =
        MemoryTier::gather(world_, snapshots_ ? snapshots_->take_offers(offer_wait) : std::vector<OfferedSnapshot>());
    if (!tier) return tier.error();
    for (std::size_t i = 0;; ++i) {
        // Rank 0 says which one: another host may see the directory a moment older.
        auto next = from_rank_0(world_, Result<std::string>(i < candidates.size() ? to_string(candidates[i]) : ""));
        if (!next) return next.error();
        const auto name = parse_checkpoint_name(*next);
        if (i == 0 && tier->step() >= (name ? name->step : 0)) {
            auto loaded = try_memory(*tier, state, place, report);
            if (!loaded) return loaded.error();
            report.load_ms = milliseconds_since(began);
            if (*loaded) return std::optional(std::move(report));
        }
        if (!name) break;
        auto loaded = try_candidate(*name, state, place, report);
        if (!loaded) return loaded.error();
        if (!*loaded) continue;
        report.load_ms = milliseconds_since(began);
        return std::optional(std::move(report));
    }
    if (report.skipped.empty()) return std::optional<LoadReport>();
    return Error{Errc::bad_frame, cat(options_.directory, ": no checkpoint is whole; ", join(report.skipped, "; "),
                                      "; move them away to start over")};
}

RankFile CheckpointerBody::plan(std::int64_t step, const CheckpointState& state) const {
    RankFile file;
    file.step = step;
    file.round = identity_.round;
    file.job = identity_.job;
    file.rank = world_.rank();
    file.world = world_.size();
    file.rank_value = state.rank_value;
    if (world_.rank() == 0) file.values = state.values;
    lay_out(file, own_pieces(state.tensors, world_.rank(), world_.size()));
    return file;
}

Result<void> CheckpointerBody::make_room(SharedSegment& room, std::uint64_t bytes) {
    if (room.size_bytes() >= bytes) return {};
    room = {};
    // A little more, so that a longer text beside the tensors does not take everything anew.
    auto memory =
        SharedSegment::create(rounded(bytes) + 16 * file_alignment, "the copy that a checkpoint is written from");
    if (!memory) return memory.error();
    room = std::move(*memory);
    return {};
}

Result<void> CheckpointerBody::reserve(const CheckpointState& state) {
    if (auto fine = check_state(state); !fine) return fine;
    worker_->finish();
    const auto bytes = rounded(plan(0, state).size_bytes);
    for (std::size_t i = 0; i < (snapshots_ ? memories_.size() : 1); ++i) {
        if (auto made = make_room(memories_[i], bytes); !made) return made;
    }
    return {};
}

/// A collective: is it so on any rank?
Result<bool> CheckpointerBody::any_rank(bool here) {
    std::uint8_t so = here ? 1 : 0;
    if (auto agreed = world_.run(all_reduce(buffer(std::span(&so, 1)), ReduceOp::max)); !agreed) return agreed.error();
    return so != 0;
}

Result<void> CheckpointerBody::save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy) {
    const auto began = Clock::now();
    if (step < 0) return Error{Errc::invalid_argument, cat("a checkpoint of step ", step, "; 0 or more")};
    if (auto fine = check_state(state); !fine) return fine;
    if (when_busy == WhenBusy::skip) {
        auto busy = any_rank(!worker_->idle());
        if (!busy) return busy.error();
        if (*busy) {
            const std::string why = "the save before it was still being written";
            log(world_.rank() == 0 ? LogLevel::warning : LogLevel::info, "checkpoint of step ", step,
                " was left out: ", why);
            SaveReport report;
            report.step = step;
            report.trouble = why;
            report.blocked_ms = milliseconds_since(began);
            worker_->leave_out(std::move(report));
            return {};
        }
    }
    return hand_over(step, state, true, began);
}

Result<void> CheckpointerBody::snapshot(std::int64_t step, const CheckpointState& state) {
    const auto began = Clock::now();
    if (step < 0) return Error{Errc::invalid_argument, cat("a snapshot of step ", step, "; 0 or more")};
    if (auto fine = check_state(state); !fine) return fine;
    auto busy = any_rank(!snapshots_ || !worker_->idle() || began < last_snapshot_ + options_.snapshot_interval);
    if (!busy) return busy.error();
    if (*busy) return {};
    last_snapshot_ = began;
    return hand_over(step, state, false, began);
}

Result<void> CheckpointerBody::hand_over(std::int64_t step, const CheckpointState& state, bool to_disk, Instant began) {
    worker_->finish();
    if (worker_->gave_last()) turn_ = (turn_ + 1) % memories_.size();
    Snapshot snapshot;
    snapshot.to_disk = to_disk;
    snapshot.file = plan(step, state);
    auto copied = copy(state, snapshot);
    if (!copied) snapshot.failure = copied.error();
    snapshot.taken = Clock::now();
    snapshot.report.step = step;
    snapshot.report.bytes = snapshot.file.size_bytes;
    snapshot.report.blocked_ms = milliseconds_since(began);
    worker_->begin(std::move(snapshot));
    return copied;
}

Result<void> CheckpointerBody::copy(const CheckpointState& state, Snapshot& snapshot) {
    const auto bytes = snapshot.file.size_bytes;
    auto& room = memories_[turn_];
    if (auto made = make_room(room, rounded(bytes)); !made) return made;
    snapshot.memory = {room.data(), rounded(bytes)};
    snapshot.descriptor = &room.descriptor();
    const Sources sources(state.tensors);
    for (const auto& [piece, offset, crc] : snapshot.file.pieces) {
        if (piece.count > 0) std::memcpy(room.data() + offset, sources.find(piece), piece.size_bytes());
    }
    std::memset(room.data() + bytes, 0, rounded(bytes) - bytes);
    return {};
}

Result<void> CheckpointerBody::finish() {
    worker_->finish();
    const auto trouble = worker_->newest_trouble();
    return trouble.empty() ? Result<void>() : Error{Errc::io, cat("the newest checkpoint was not saved: ", trouble)};
}

}  // namespace runtime

Result<Checkpointer> Checkpointer::open(Communicator& world, std::unique_ptr<Store> board, const Identity& identity,
                                        const CheckpointOptions& options,
                                        std::shared_ptr<runtime::SnapshotLink> snapshots) {
    auto all = runtime::complete(options);
    if (!all) return all.error();
    auto body = std::make_unique<runtime::CheckpointerBody>(world, identity, std::move(*all), std::move(snapshots));
    if (auto opened = body->open(std::move(board)); !opened) return opened.error();
    return Checkpointer(std::move(body));
}

Result<Checkpointer> Checkpointer::open(Context& context, const CheckpointOptions& options) {
    auto board = context.connect_store();
    if (!board) return board.error();
    return open(context.world(), std::move(*board), {.job = context.job(), .round = context.round()}, options,
                context.snapshots());
}

Checkpointer::Checkpointer(std::unique_ptr<runtime::CheckpointerBody> body) : body_(std::move(body)) {}
Checkpointer::~Checkpointer() = default;
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&&) noexcept = default;
Result<std::optional<LoadReport>> Checkpointer::load(CheckpointState& state) {
    return body_->load(state, {});
}
Result<std::optional<LoadReport>> Checkpointer::load_as_saved(CheckpointState& state, const PlaceTensors& place) {
    return body_->load(state, place);
}
Result<void> Checkpointer::save(std::int64_t step, const CheckpointState& state) {
    return body_->save(step, state, body_->when_busy());
}
Result<void> Checkpointer::save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy) {
    return body_->save(step, state, when_busy);
}
Result<void> Checkpointer::snapshot(std::int64_t step, const CheckpointState& state) {
    return body_->snapshot(step, state);
}
Result<void> Checkpointer::reserve(const CheckpointState& state) {
    return body_->reserve(state);
}
Result<void> Checkpointer::finish() {
    return body_->finish();
}
std::vector<SaveReport> Checkpointer::reports() {
    return body_->reports();
}

}  // namespace muster
