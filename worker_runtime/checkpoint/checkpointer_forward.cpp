// Loading without a checkpoint: a survivor of a failure has the whole state of a step in its memory, and gives it to
// the ranks that lack it. Survivors may be one step apart, so the highest step wins: after its last collective a rank
// needs nothing of the others to end it, and sums have the same bits on all ranks.
#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/checkpointer_body.h"
#include "worker_runtime/checkpoint/files/loader.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/safetensors.h"
#include "worker_runtime/checkpoint/replicas.h"

namespace muster::runtime {

namespace {

bool has_shard(const std::vector<StateTensor>& tensors) {
    return std::ranges::any_of(tensors, [](const auto& tensor) { return tensor.placement == Placement::sharded; });
}

/// A part of the state that no other rank has.
bool has_own_part(const CheckpointState& state) {
    return !state.rank_value.empty() || !state.rank_bytes.empty() || has_shard(state.tensors);
}

/// The part of the state that is not in tensors, such as a learning rate. `values` are sorted by their keys.
std::uint32_t checksum_of(const std::map<std::string, std::string>& values) {
    std::uint32_t sum = 0;
    for (const auto& [key, value] : values) {
        const auto text = cat(key.size(), ' ', value.size(), ' ', key, value);
        sum = crc32c(std::as_bytes(std::span(text)), sum);
    }
    return sum;
}

/// Which ranks have the state of the highest clean step.
struct Holders {
    std::int64_t step = -1;
    bool any_torn = false;
    bool any_own_part = false;
    bool values_differ = false;
    std::vector<int> ranks, others;
};

Result<Holders> find_holders(Communicator& world, std::int64_t clean_step, const CheckpointState& state,
                             Duration timeout) {
    std::array<std::int64_t, 3> mine{clean_step, has_own_part(state) ? 1 : 0, checksum_of(state.values)};
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
    MUSTER_TRY(world.run(all_gather(buffer(std::span<std::int64_t>(mine)), buffer(std::span(all))), timeout));
    Holders holders;
    for (std::size_t i = 0; i < all.size(); i += mine.size()) {
        holders.step = std::max(holders.step, all[i]);
        holders.any_torn = holders.any_torn || all[i] == CleanStep::torn;
        holders.any_own_part = holders.any_own_part || all[i + 1] != 0;
    }
    const auto values_of = [&](int rank) { return all[mine.size() * static_cast<std::size_t>(rank) + 2]; };
    for (int rank = 0; rank < world.size(); ++rank)
        (all[mine.size() * static_cast<std::size_t>(rank)] == holders.step ? holders.ranks : holders.others)
            .push_back(rank);
    holders.values_differ = std::ranges::any_of(
        holders.ranks, [&](int rank) { return values_of(rank) != values_of(holders.ranks.front()); });
    return holders;
}

/// A collective: gives the whole state of one holder to the ranks that lack it, and computes the checksums of all.
/// Over a part of the world, so that the other holders neither need memory for it nor time: they read their state
/// meanwhile.
Result<std::vector<Replica>> pass_on(Communicator& world, const Holders& holders,
                                     const std::vector<StateTensor>& tensors, Duration timeout) {
    if (holders.others.empty()) return replicas_of(tensors);
    const int from = holders.ranks.front();
    const bool takes_part = world.rank() == from || std::ranges::count(holders.others, world.rank()) > 0;
    auto part = MUSTER_TRY(world.split(takes_part ? 0 : -1, world.rank() == from ? -1 : world.rank()));
    if (!takes_part) return replicas_of(tensors);
    return replicas_of(tensors, [&](std::span<std::byte> bytes) {
        return part->run(broadcast({bytes.data(), bytes.size(), DataType::u8}, 0), timeout);
    });
}

}  // namespace

/// A collective: `rank` describes its state as it describes a file that has all of it.
Result<Manifest> CheckpointerBody::layout_of(int rank, std::int64_t step, const CheckpointState& state) const {
    RankFile file;
    std::string head;
    if (world_.rank() == rank) {
        file.step = step;
        file.round = identity_.round;
        file.job = identity_.job;
        file.opening = opening_;
        file.directory_word = word_;
        file.values = state.values;
        lay_out(file, own_pieces(state.tensors, Replicas::rank_0, 0, 1));
        head = encode_head(file);
    }
    std::array<std::uint64_t, 2> sizes{head.size(), file.size_bytes};
    MUSTER_TRY(world_.run(broadcast(buffer(std::span<std::uint64_t>(sizes)), rank), options_.persist_timeout));
    if (sizes[0] > safetensors_length_bytes + safetensors_header_bytes_max)
        return Error{Errc::bad_frame, "a survivor describes its state with too many bytes"};
    head.resize(sizes[0]);
    MUSTER_TRY(world_.run(broadcast({head.data(), head.size(), DataType::u8}, rank), options_.persist_timeout));
    const auto parsed = MUSTER_TRY(parse_rank_file(head, sizes[1]));
    return make_manifest({parsed}, {0});
}

/// If the ranks of a clean state refuse it, a line has the reason.
Result<CheckpointerBody::Forward> CheckpointerBody::try_forward(CheckpointState& state, const PlaceTensors& place,
                                                                CleanStep& clean, LoadReport& report) {
    const auto holders = MUSTER_TRY(find_holders(world_, clean.step(), state, options_.persist_timeout));
    if (holders.step < 0) return holders.any_torn ? Forward::refused : Forward::all_are_new;
    const auto roll_back = [&](std::string_view why) {
        report.skipped.push_back(cat("the survivors' state of step ", holders.step, ": ", why));
        if (world_.rank() == 0)
            log(LogLevel::warning, "the survivors' state of step ", holders.step,
                " is not used, the newest copy is: ", why);
        return Forward::refused;
    };
    if (holders.any_own_part)
        return roll_back("a rank has shards, rank_value or rank_bytes, which no other rank can give it");
    if (holders.values_differ)
        return roll_back("what it holds besides tensors, such as the learning rate, differs between these ranks");
    const bool holds = clean.step() == holders.step;
    const auto layout = layout_of(holders.ranks.front(), holders.step, state);
    Result<void> fits = layout ? Result<void>() : layout.error();
    if (fits && !holds) {
        clean.begin();
        fits = place_tensors(*layout, state, place);
    }
    if (fits && has_shard(state.tensors)) fits = Error{Errc::unsupported, "a rank asks for shards"};
    if (fits) fits = match_model(*layout, state.tensors);
    auto agreed = MUSTER_TRY(agree(fits));
    if (!agreed.all_well && agreed.failure.code == Errc::unsupported) return roll_back(agreed.failure.context);
    if (!agreed.all_well) return agreed.failure;
    // A new rank's state, too, is torn if this ends early.
    if (!holds) clean.set(CleanStep::torn);
    const auto replicas = pass_on(world_, holders, state.tensors, options_.persist_timeout);
    agreed = MUSTER_TRY(agree(replicas ? Result<void>() : replicas.error()));
    if (!agreed.all_well) return roll_back(agreed.failure.context);
    const auto same = compare_replicas(world_, *replicas, "", options_.persist_timeout);
    // Also after a failure: other ranks may have seen a difference, and then no rank may continue from this state.
    if (!same) clean.begin();
    MUSTER_TRY(world_.status());
    if (!same) return roll_back(same.error().context);
    state.values = layout->values;
    report.step = holders.step;
    report.from_survivor = true;
    // Nobody maps them: that would take longer than all of this.
    if (snapshots_) (void)snapshots_->take_offers(offer_wait);
    return Forward::taken;
}

}  // namespace muster::runtime
