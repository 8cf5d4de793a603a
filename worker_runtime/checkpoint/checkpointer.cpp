#include "muster/checkpoint.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "muster/section.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/checkpointer_body.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/identity.h"
#include "worker_runtime/checkpoint/format/copy_pairs.h"
#include "worker_runtime/transport/variable.h"

namespace muster {

namespace runtime {

namespace {

/// The section name under which the agent sees that the worker is busy with a checkpoint.
constexpr std::string_view section_name = "checkpoint";
/// A longer refusal is cut before rank 0 sends it to all ranks.
constexpr std::size_t sentence_bytes_max = 1000;

Result<CheckpointOptions> complete(CheckpointOptions options) {
    if (options.directory.empty()) options.directory = variable("MUSTER_CHECKPOINT_DIR").value_or("");
    if (options.directory.empty()) {
        return Error{
            Errc::invalid_argument,
            "no checkpoint directory: start the job with muster --checkpoint-dir DIR, or name one in the options"};
    }
    if (options.local_directory.empty()) options.local_directory = variable("MUSTER_CHECKPOINT_LOCAL_DIR").value_or("");
    if (options.shared_every < 1) {
        return Error{Errc::invalid_argument, cat("shared_every is ", options.shared_every, "; at least 1")};
    }
    if (options.keep_last < 1) {
        return Error{Errc::invalid_argument, cat("keep_last is ", options.keep_last, "; at least 1 must be kept")};
    }
    if (options.keep_every < 0) {
        return Error{Errc::invalid_argument, cat("keep_every is ", options.keep_every, "; 0 or more")};
    }
    if (options.copy_bytes_per_second > 0 && options.copy_bytes_per_second < copy_bytes_per_second_min) {
        return Error{Errc::invalid_argument,
                     cat("copy_bytes_per_second is ", options.copy_bytes_per_second, "; at least ",
                         copy_bytes_per_second_min, ", or 0 for as fast as the network takes them")};
    }
    return options;
}

}  // namespace

Result<CheckpointerBody::Directory> CheckpointerBody::take_directory() const {
    Directory directory;
    auto& terms = directory.terms;
    if (auto made = make_folders(options_.directory); !made) {
        return with_context(made.error(), "make the checkpoint directory");
    }
    auto claim = DirectoryClaim::take(options_.directory, {.job = identity_.job, .round = identity_.round});
    if (!claim && claim.error().code != Errc::permission_denied) return claim.error();
    if (!claim) {
        // The directory may belong to another user, for example one with checkpoints to start a new training from.
        terms.refusal = cat(options_.directory, " can be read but not written: ", claim.error().context);
        terms.nonce = fresh_token();
        log(LogLevel::warning, terms.refusal, "; nothing will be saved");
        directory.identity = identity_of(options_.directory);
        return directory;
    }
    auto identity = keep_identity(options_.directory, *claim);
    if (identity) {
        directory.identity = std::move(*identity);
    } else {
        log(LogLevel::warning, "the identity of ", options_.directory, ": ", identity.error().context);
    }
    auto adopted = MUSTER_TRY(tidy_up(options_.directory, *claim));
    if (adopted) {
        log(LogLevel::info, options_.directory, ": ", to_string(*adopted),
            " was complete except for its manifest, and is a checkpoint now");
    }
    auto listing = MUSTER_TRY(list_directory(options_.directory));
    for (const auto& name : listing.checkpoints) terms.known.push_back({.name = name});
    terms.nonce = claim->token();
    terms.claim = std::move(*claim);
    return directory;
}

/// If copies are possible on all ranks, puts each rank into a group with the ranks that its copies go to and come from.
Result<void> CheckpointerBody::reach_neighbours(const CheckpointNeighbours& neighbours) {
    std::array<std::int32_t, 2> mine{neighbours.node,
                                     options_.copy_to_next_node && snapshots_ && neighbours.make_group ? 1 : 0};
    std::vector<std::int32_t> all(static_cast<std::size_t>(world_.size()) * mine.size());
    MUSTER_TRY(world_.run(all_gather(buffer(std::span<std::int32_t>(mine)), buffer(std::span(all)))));
    std::vector<int> nodes;
    for (std::size_t i = 0; i < all.size(); i += mine.size()) {
        if (all[i + 1] == 0) return {};
        nodes.push_back(all[i]);
    }
    const auto targets = copy_targets(nodes);
    const int target = targets[static_cast<std::size_t>(world_.rank())];
    if (target < 0) return {};
    const auto ring = copy_ring(targets, world_.rank());
    const auto place_of = [&ring](int rank) {
        return static_cast<int>(std::lower_bound(ring.begin(), ring.end(), rank) - ring.begin());
    };
    NeighbourCopies::Terms terms;
    terms.target = place_of(target);
    terms.ranks_here = static_cast<int>(std::count(nodes.begin(), nodes.end(), mine[0]));
    for (const int rank : ring) {
        if (targets[static_cast<std::size_t>(rank)] == world_.rank()) terms.sources.push_back({place_of(rank), rank});
    }
    terms.snapshots = snapshots_;
    terms.bytes_per_second = options_.copy_bytes_per_second;
    auto group = neighbours.make_group(ring);
    if (!group) return with_context(group.error(), "reach the next node, for copies of snapshots");
    terms.group = std::move(*group);
    copies_ = MUSTER_TRY(NeighbourCopies::start(std::move(terms)));
    return {};
}

Result<void> CheckpointerBody::open(std::unique_ptr<Store> board, const CheckpointNeighbours& neighbours) {
    Directory directory;
    auto& terms = directory.terms;
    Result<void> taken;
    if (world_.rank() == 0) {
        auto first = take_directory();
        if (first) {
            directory = std::move(*first);
        } else {
            taken = first.error();
        }
    }
    opening_ = MUSTER_TRY(receive_from_rank_0(taken ? Result<std::string>(terms.nonce) : taken.error()));
    terms.refusal = MUSTER_TRY(receive_from_rank_0(terms.refusal.substr(0, sentence_bytes_max)));
    auto identity = MUSTER_TRY(receive_from_rank_0(directory.identity));
    word_ = directory_word(options_.directory, identity);
    auto agreed = MUSTER_TRY(agree(reach_neighbours(neighbours)));
    if (!agreed.all_well) {
        copies_.reset();
        if (world_.rank() == 0) {
            log(LogLevel::warning, "snapshots are not copied to the next node: ", agreed.failure.context);
        }
    }
    auto local = MUSTER_TRY(open_local(identity));
    if (local) terms.local = std::move(*local);
    terms.directory = options_.directory;
    terms.nonce = opening_;
    terms.timeout = options_.persist_timeout;
    terms.retention = {.last = options_.keep_last, .every = options_.keep_every};
    terms.rank = world_.rank();
    terms.snapshots = snapshots_;
    terms.copies = copies_.get();
    auto worker = SaveWorker::start(
        std::move(terms), std::make_unique<SaveBoard>(std::move(board), opening_, world_.rank(), world_.size(),
                                                      [this] { return still_needed(); }));
    agreed = MUSTER_TRY(agree(worker ? Result<void>() : worker.error()));
    if (!agreed.all_well) return agreed.failure;
    worker_ = std::move(*worker);
    return {};
}

/// A collective: checks that all ranks use the same tiers, else none would know where a save is, and the same writers.
Result<std::optional<LocalDirectory>> CheckpointerBody::open_local(const std::string& identity) {
    const auto own =
        cat(options_.local_directory.empty() ? 0 : options_.shared_every, ' ', static_cast<int>(options_.replicas));
    auto first = MUSTER_TRY(receive_from_rank_0(own));
    Result<void> fine;
    if (own != first) {
        fine = Error{Errc::invalid_argument,
                     "local_directory, shared_every or replicas differs from rank 0's; all ranks need the same values"};
    }
    auto agreed = MUSTER_TRY(agree(fine));
    if (!agreed.all_well) return agreed.failure;
    if (options_.local_directory.empty()) return std::optional<LocalDirectory>();
    if (!identity.empty()) return std::optional(LocalDirectory::open(options_.local_directory, word_));
    // Without an identity, the directory that those files belong to would be unknown later.
    if (world_.rank() == 0) {
        log(LogLevel::warning, options_.directory,
            " has no file IDENTITY and it cannot be created, so nothing is saved to ", options_.local_directory);
    }
    options_.local_directory.clear();
    return std::optional<LocalDirectory>();
}

Result<void> CheckpointerBody::still_needed() const {
    if (abandoned_) return Error{Errc::cancelled, "the checkpointer was destroyed"};
    return world_.status();
}

/// After a failure the others wait for this rank to leave its round, and then to train again. The world may be gone by
/// now: a Checkpointer may outlive its Context if it has nothing more to save.
void CheckpointerBody::leave_memories() {
    if (snapshots_ && !copies_ && snapshots_->has_failed()) SnapshotMemory::leave(std::move(memories_));
}

void CheckpointerBody::let_go(std::unique_ptr<CheckpointerBody> body) {
    if (!body || !body->worker_) return;
    const auto rest = body->worker_->finish();
    if (rest) return body->leave_memories();
    log(LogLevel::error, rest.error().context, "; its thread is abandoned");
    body->abandoned_ = true;
    // The save thread is in a system call and uses all of this when the call returns, if it ever does.
    (void)body.release();
}

}  // namespace runtime

Result<Checkpointer> Checkpointer::open(Communicator& world, std::unique_ptr<Store> board, const Identity& identity,
                                        const CheckpointOptions& options,
                                        std::shared_ptr<runtime::SnapshotLink> snapshots,
                                        const CheckpointNeighbours& neighbours) {
    auto all = runtime::complete(options);
    if (all && world.size() > 1 && !board) {
        all = Error{Errc::invalid_argument, "a checkpointer of several ranks needs a store"};
    }
    // Without this agreement, a wrong option on one host would leave the other ranks waiting.
    auto agreed = MUSTER_TRY(runtime::all_agree(world, all ? Result<void>() : all.error(), options.persist_timeout));
    if (!agreed.all_well) return all ? agreed.failure : all.error();
    auto body = std::make_unique<runtime::CheckpointerBody>(world, identity, std::move(*all), std::move(snapshots));
    MUSTER_TRY(body->open(std::move(board), neighbours));
    return Checkpointer(std::move(body));
}

Result<Checkpointer> Checkpointer::open(Context& context, const CheckpointOptions& options) {
    auto board = context.connect_store();
    auto agreed = MUSTER_TRY(
        runtime::all_agree(context.world(), board ? Result<void>() : board.error(), options.persist_timeout));
    if (!agreed.all_well) return board ? agreed.failure : board.error();
    CheckpointNeighbours neighbours{.node = context.group_rank()};
    const auto can = context.can_make_host_groups();
    if (can)
        neighbours.make_group = [&context](const auto& members) { return context.host_group(members); };
    else if (options.copy_to_next_node)
        log(LogLevel::warning, "snapshots are not copied to the next node: ", can.error().context);
    return open(context.world(), std::move(*board), {.job = context.job(), .round = context.round()}, options,
                context.snapshots(), neighbours);
}

Checkpointer::Checkpointer(std::unique_ptr<runtime::CheckpointerBody> body) : body_(std::move(body)) {}
Checkpointer::~Checkpointer() {
    runtime::CheckpointerBody::let_go(std::move(body_));
}
Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;
Checkpointer& Checkpointer::operator=(Checkpointer&& other) noexcept {
    runtime::CheckpointerBody::let_go(std::exchange(body_, std::move(other.body_)));
    return *this;
}
Result<std::optional<LoadReport>> Checkpointer::load(CheckpointState& state) {
    CleanStep none;
    return load(state, none);
}
Result<std::optional<LoadReport>> Checkpointer::load(CheckpointState& state, CleanStep& clean) {
    const Section section(runtime::section_name);
    return body_->load(state, {}, clean);
}
Result<std::optional<LoadReport>> Checkpointer::load_as_saved(CheckpointState& state, const PlaceTensors& place) {
    CleanStep none;
    return load_as_saved(state, place, none);
}
Result<std::optional<LoadReport>> Checkpointer::load_as_saved(CheckpointState& state, const PlaceTensors& place,
                                                              CleanStep& clean) {
    const Section section(runtime::section_name);
    return body_->load(state, place, clean);
}
Result<void> Checkpointer::save(std::int64_t step, const CheckpointState& state) {
    return save(step, state, body_->when_busy());
}
Result<void> Checkpointer::save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy) {
    const Section section(runtime::section_name);
    return body_->save(step, state, when_busy);
}
Result<void> Checkpointer::snapshot(std::int64_t step, const CheckpointState& state) {
    return body_->snapshot(step, state);
}
Result<void> Checkpointer::reserve(const CheckpointState& state) {
    return body_->reserve(state);
}
Result<void> Checkpointer::finish() {
    const Section section(runtime::section_name);
    return body_->finish();
}
std::int64_t Checkpointer::copied_step() const {
    return body_->copied_step();
}
std::vector<SaveReport> Checkpointer::reports() {
    return body_->reports();
}

}  // namespace muster
