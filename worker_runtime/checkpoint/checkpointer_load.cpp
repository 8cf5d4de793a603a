// Loading: finds the newest checkpoint that is complete on all ranks.
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/checkpointer_body.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/loader.h"

namespace muster::runtime {

namespace {

/// The most files of its host's disk that one rank offers.
constexpr std::size_t local_parts_max = 2;

/// A missing file, and one that this version cannot read, count as damage. I/O errors of the disk and lack of memory do
/// not.
Error as_damage(Error error) {
    if (error.code == Errc::not_found || error.code == Errc::unsupported) error.code = Errc::bad_frame;
    return error;
}

}  // namespace

/// Lets the caller create its tensors from the saved ones.
Result<void> CheckpointerBody::place_tensors(const Manifest& manifest, CheckpointState& state,
                                             const PlaceTensors& place) {
    if (!place) return {};
    state.tensors.clear();
    for (const auto& tensor : manifest.tensors) {
        if (is_rank_bytes(tensor.name)) continue;
        state.tensors.push_back(StateTensor::whole(tensor.name, tensor.type, tensor.shape, nullptr));
    }
    auto placed = place(state.tensors);
    return placed ? check_state(state) : placed;
}

Result<Manifest> CheckpointerBody::open_candidate(const std::string& folder, CheckpointState& state,
                                                  const PlaceTensors& place) {
    auto manifest = read_manifest(folder);
    if (!manifest) return as_damage(manifest.error());
    MUSTER_TRY(place_tensors(*manifest, state, place));
    if (auto match = match_model(*manifest, state.tensors); !match) return with_context(match.error(), folder);
    return manifest;
}

/// Returns false if the checkpoint is incomplete; `report` has the reason.
Result<bool> CheckpointerBody::try_candidate(const CheckpointName& name, CheckpointState& state,
                                             const PlaceTensors& place, LoadReport& report) {
    const auto folder = cat(options_.directory, '/', to_string(name));
    const auto skip = [&](const Error& why) {
        report.skipped.push_back(cat(to_string(name), ": ", why.context));
        if (world_.rank() == 0) {
            worker_->note({.name = name, .damaged = true});
            log(LogLevel::warning, "checkpoint ", folder, " is incomplete or damaged, and was skipped: ", why.context);
        }
        return false;
    };
    auto manifest = open_candidate(folder, state, place);
    auto agreed = MUSTER_TRY(agree(manifest ? Result<void>() : manifest.error()));
    if (!agreed.all_well) {
        if (agreed.failure.code != Errc::bad_frame) return agreed.failure;
        return skip(agreed.failure);
    }
    const auto filled =
        load_tensors(folder, *manifest, with_rank_bytes(*manifest, state, world_.rank(), world_.size()));
    agreed = MUSTER_TRY(agree(filled ? filled : as_damage(filled.error())));
    if (!agreed.all_well) {
        if (agreed.failure.code != Errc::bad_frame) return agreed.failure;
        return skip(agreed.failure);
    }
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

/// Returns false if the copies could not be read after all; `report` has the reason.
Result<bool> CheckpointerBody::try_near(const MemoryTier& tier, Nearness nearness, CheckpointState& state,
                                        const PlaceTensors& place, LoadReport& report) {
    auto fits = place_tensors(tier.manifest(), state, place);
    if (fits) fits = match_model(tier.manifest(), state.tensors);
    auto agreed = MUSTER_TRY(agree(fits));
    if (!agreed.all_well) return agreed.failure;
    agreed =
        MUSTER_TRY(agree(tier.load(world_, with_rank_bytes(tier.manifest(), state, world_.rank(), world_.size()))));
    if (!agreed.all_well) {
        report.skipped.push_back(cat(nearness == Nearness::memory ? "the agents' copies" : "the local disks' files",
                                     " of step ", tier.step(), ": ", agreed.failure.context));
        if (world_.rank() == 0) log(LogLevel::warning, report.skipped.back());
        return false;
    }
    take_texts(tier.manifest(), state);
    report.step = tier.step();
    report.from_memory = nearness == Nearness::memory;
    report.from_local_disk = nearness == Nearness::local_disk;
    return true;
}

/// Gathers the agents' copies, or the local disks' if they have a newer step: restarted agents do not know that step.
Result<std::pair<MemoryTier, CheckpointerBody::Nearness>> CheckpointerBody::gather_near() {
    auto memory = MUSTER_TRY(
        MemoryTier::gather(world_, snapshots_ ? snapshots_->take_offers(offer_wait) : std::vector<OfferedSnapshot>(),
                           word_, options_.persist_timeout));
    if (options_.local_directory.empty()) return std::pair(std::move(memory), Nearness::memory);
    // The file names suffice: usually the disks have nothing newer, and no file is read.
    auto newest = worker_->newest_local();
    MUSTER_TRY(world_.run(all_reduce(buffer(std::span(&newest, 1)), ReduceOp::max), options_.persist_timeout));
    if (newest <= memory.step()) return std::pair(std::move(memory), Nearness::memory);
    auto disks =
        MUSTER_TRY(MemoryTier::gather(world_, worker_->take_local(local_parts_max), word_, options_.persist_timeout));
    if (disks.step() <= memory.step()) return std::pair(std::move(memory), Nearness::memory);
    return std::pair(std::move(disks), Nearness::local_disk);
}

Result<std::optional<LoadReport>> CheckpointerBody::load(CheckpointState& state, const PlaceTensors& place,
                                                         CleanStep& clean) {
    auto loaded = load_newest(state, place, clean);
    if (!place && loaded && *loaded) clean.set((*loaded)->step);
    worker_->release_local();
    return loaded;
}

Result<std::optional<LoadReport>> CheckpointerBody::load_newest(CheckpointState& state, const PlaceTensors& place,
                                                                CleanStep& clean) {
    const auto began = std::chrono::steady_clock::now();
    auto ready = place && clean.step() < 0 ? Result<void>() : check_state(state);
    if (ready) ready = worker_->finish();
    auto agreed = MUSTER_TRY(agree(ready));
    if (!agreed.all_well) return agreed.failure;
    LoadReport report;
    auto forward = MUSTER_TRY(try_forward(state, place, clean, report));
    if (forward == Forward::taken) {
        report.load_ms = milliseconds_since(began);
        return std::optional(std::move(report));
    }
    clean.begin();
    const bool had_state = forward == Forward::refused;
    std::vector<CheckpointName> candidates;
    if (world_.rank() == 0) {
        if (auto listing = list_directory(options_.directory)) candidates = listing->checkpoints;
    }
    auto near = MUSTER_TRY(gather_near());
    const auto& [tier, nearness] = near;
    bool near_tried = false, any_on_disk = false;
    for (std::size_t i = 0;; ++i) {
        // Rank 0 names the checkpoint: another host may see an older state of the directory.
        auto next =
            MUSTER_TRY(receive_from_rank_0(Result<std::string>(i < candidates.size() ? to_string(candidates[i]) : "")));
        const auto name = parse_checkpoint_name(next);
        any_on_disk = any_on_disk || name.has_value();
        if (!near_tried && tier.step() >= (name ? name->step : 0)) {
            near_tried = true;
            auto loaded = MUSTER_TRY(try_near(tier, nearness, state, place, report));
            report.load_ms = milliseconds_since(began);
            if (loaded) return std::optional(std::move(report));
        }
        if (!name) break;
        auto loaded = MUSTER_TRY(try_candidate(*name, state, place, report));
        if (!loaded) continue;
        report.load_ms = milliseconds_since(began);
        return std::optional(std::move(report));
    }
    // The caller would take "no checkpoint" for a first start, with a memory that has been trained.
    if (!any_on_disk && had_state)
        return Error{Errc::not_found, cat("there is no copy and no checkpoint to return to: ",
                                          report.skipped.empty() ? "no survivor has the whole state of a step"
                                                                 : join(report.skipped, "; "),
                                          "; take snapshot(0) before the first step, and start all workers again")};
    if (!any_on_disk) return std::optional<LoadReport>();
    return Error{Errc::bad_frame, cat(options_.directory, ": no checkpoint is complete; ", join(report.skipped, "; "),
                                      "; move them away to start from the beginning")};
}

}  // namespace muster::runtime
