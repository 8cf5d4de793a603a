#include "worker_runtime/checkpoint/memory_tier.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "rendezvous/base/log.h"
#include "worker_runtime/checkpoint/agreement.h"
#include "worker_runtime/checkpoint/files/loader.h"
#include "worker_runtime/checkpoint/format/rank_file.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

constexpr std::size_t chunk_bytes = 16u << 20;
/// The number of snapshots and copies that an agent keeps together.
constexpr std::int64_t offers_max = 30;

/// One snapshot that a rank offers, of fixed size because collectives need that.
struct Ticket {
    std::int64_t step = -1;  ///< -1: nothing
    std::int64_t round = 0;
    std::uint64_t save = 0;
    char opening[16] = {};
    std::int32_t rank = 0, world = 0;
    std::uint64_t data_begin = 0, size_bytes = 0;
};

using Save = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::string>;  // step, round, save, opening

Save save_of(const Ticket& ticket) {
    return {ticket.step, ticket.round, ticket.save, std::string(ticket.opening, sizeof ticket.opening)};
}

/// Other ranks are not trusted: the header must be within its limit and within its file.
bool is_sound(const Ticket& ticket) {
    return ticket.step >= 0 && ticket.data_begin <= ticket.size_bytes &&
           ticket.data_begin <= safetensors_length_bytes + safetensors_header_bytes_max;
}

/// Finds the newest save that is complete. Returns the index of each part's ticket, by rank of the saved world; empty:
/// none.
std::vector<std::size_t> newest_whole(const std::vector<Ticket>& tickets) {
    std::map<Save, std::map<int, std::size_t>> saves;
    for (std::size_t i = 0; i < tickets.size(); ++i) {
        if (is_sound(tickets[i])) saves[save_of(tickets[i])].emplace(tickets[i].rank, i);
    }
    for (auto save = saves.rbegin(); save != saves.rend(); ++save) {
        std::vector<std::size_t> parts;
        for (const auto& [rank, ticket] : save->second) parts.push_back(ticket);
        if (parts.size() == static_cast<std::size_t>(tickets[parts.front()].world)) return parts;
    }
    return {};
}

/// A readable snapshot and its memory.
struct Brought {
    Ticket ticket;
    SharedSegment memory;
};

Brought examine(const OfferedSnapshot& offer, const std::string& directory_word) {
    auto memory = SharedSegment::map(offer.memory, offer.size_bytes);
    const auto file = memory ? read_whole({memory->data(), offer.size_bytes}) : memory.error();
    if (!file) {
        log(LogLevel::warning, "a snapshot of the previous worker is incomplete: ", file.error().context);
        return {};
    }
    if (file->directory_word != directory_word) {
        // A word with another path belongs to another checkpointer of this worker.
        const auto same_path = file->directory_word.substr(0, file->directory_word.find('-')) ==
                               directory_word.substr(0, directory_word.find('-'));
        if (same_path) {
            log(LogLevel::warning, "a copy of step ", file->step,
                " in memory is ignored: it belongs to checkpoints from before the ",
                "directory was emptied or replaced");
        }
        return {};
    }
    Ticket ticket{.step = file->step,
                  .round = file->round,
                  .save = file->save,
                  .rank = file->rank,
                  .world = file->world,
                  .data_begin = file->data_begin,
                  .size_bytes = file->size_bytes};
    file->opening.copy(ticket.opening, sizeof ticket.opening);
    return {ticket, std::move(*memory)};
}

}  // namespace

Result<MemoryTier> MemoryTier::gather(Communicator& world, std::vector<OfferedSnapshot> offers,
                                      const std::string& directory_word, Duration timeout) {
    auto most = std::min(static_cast<std::int64_t>(offers.size()), offers_max);
    MUSTER_TRY(world.run(all_reduce(buffer(std::span(&most, 1)), ReduceOp::max), timeout));
    const auto slots = static_cast<std::size_t>(most);
    if (slots == 0) return MemoryTier();
    std::vector<Brought> brought(slots);
    std::vector<Ticket> mine(slots);
    for (std::size_t i = 0; i < std::min(offers.size(), slots); ++i) {
        brought[i] = examine(offers[i], directory_word);
        mine[i] = brought[i].ticket;
    }
    std::vector<Ticket> all(static_cast<std::size_t>(world.size()) * slots);
    MUSTER_TRY(world.run(all_gather(buffer(bytes_of(std::span(mine))), buffer(bytes_of(std::span(all)))), timeout));
    MemoryTier tier;
    for (const auto index : newest_whole(all)) {
        const auto& ticket = all[index];
        const int holder = static_cast<int>(index / slots);
        Part part{.holder = holder, .data_begin = ticket.data_begin, .size_bytes = ticket.size_bytes};
        if (holder == world.rank()) part.memory = std::move(brought[index % slots].memory);
        tier.parts_.push_back(std::move(part));
        tier.step_ = ticket.step;
    }
    if (tier.parts_.empty()) return tier;
    if (auto heads = tier.share_heads(world); !heads) return heads.error();
    return tier;
}

/// All ranks build the same manifest from the same heads, or find the same error in them.
Result<void> MemoryTier::share_heads(Communicator& world) {
    std::vector<RankFile> files;
    for (const auto& part : parts_) {
        std::string head(part.data_begin, '\0');
        if (part.holder == world.rank()) std::memcpy(head.data(), part.memory.data(), head.size());
        MUSTER_TRY(world.run(broadcast({head.data(), head.size(), DataType::u8}, part.holder)));
        auto file = parse_rank_file(head, part.size_bytes);
        if (file) files.push_back(std::move(*file));
    }
    auto manifest = files.size() == parts_.size() ? make_manifest(files, std::vector<std::uint32_t>(files.size()))
                                                  : Result<Manifest>(Error{Errc::bad_frame, "a part is malformed"});
    if (manifest) {
        manifest_ = std::move(*manifest);
    } else {
        log(LogLevel::warning, "the snapshots of step ", step_, " do not fit together: ", manifest.error().context);
        step_ = -1;
    }
    return {};
}

Result<void> MemoryTier::send_part(Communicator& world, const Part& part, const std::vector<ByteRange>& ranges,
                                   const ByteSink& sink) const {
    const bool is_here = part.holder == world.rank();
    std::vector<std::byte> chunk(is_here ? 0 : std::min<std::uint64_t>(chunk_bytes, part.size_bytes - part.data_begin));
    auto range = ranges.begin();
    Result<void> used;
    for (auto at = part.data_begin; at < part.size_bytes; at += chunk_bytes) {
        const auto size = std::min<std::uint64_t>(chunk_bytes, part.size_bytes - at);
        auto* const data = is_here ? part.memory.data() + at : chunk.data();
        MUSTER_TRY(world.run(broadcast({data, size, DataType::u8}, part.holder)));
        // A rank that has found an error still takes part, else the others would wait.
        for (; used && range != ranges.end() && range->begin < at + size; ++range) {
            const auto from = std::max(range->begin, at), to = std::min(range->end, at + size);
            if (from < to) used = sink({data + (from - at), to - from});
            if (range->end > at + size) break;
        }
    }
    return used;
}

/// A collective: whether a part is needed by a rank that does not have it. Of a sharded state each rank mostly has what
/// it needs.
Result<std::vector<std::uint8_t>> MemoryTier::parts_to_send(Communicator& world,
                                                            const std::vector<StateTensor>& tensors) const {
    std::vector<std::uint8_t> sends(parts_.size());
    auto looked = fill_tensors("", manifest_, tensors, [&](auto file, const auto& ranges, const auto&) {
        sends[file] = !ranges.empty() && parts_[file].holder != world.rank() ? 1 : 0;
        return Result<void>();
    });
    if (looked) looked = world.run(all_reduce(buffer(std::span<std::uint8_t>(sends)), ReduceOp::max));
    return looked ? Result<std::vector<std::uint8_t>>(std::move(sends)) : looked.error();
}

/// As send_part(), where no other rank needs any of it.
Result<void> MemoryTier::read_part(const Part& part, const std::vector<ByteRange>& ranges, const ByteSink& sink) {
    Result<void> used;
    for (const auto& range : ranges)
        if (used) used = sink({part.memory.data() + range.begin, range.end - range.begin});
    return used;
}

Result<void> MemoryTier::load(Communicator& world, const std::vector<StateTensor>& tensors) const {
    const auto sends = MUSTER_TRY(parts_to_send(world, tensors));
    Result<void> fault;
    auto filled = fill_tensors("the snapshot for ", manifest_, tensors,
                               [&](std::uint64_t file, const std::vector<ByteRange>& ranges, const ByteSink& sink) {
                                   const auto& part = parts_[file];
                                   auto sent = sends[file] != 0 ? send_part(world, part, ranges, sink)
                                                                : read_part(part, ranges, sink);
                                   if (sent || world.status().has_error()) return sent;
                                   if (fault) fault = sent.error();
                                   return Result<void>();
                               });
    return filled ? fault : filled;
}

}  // namespace muster::runtime
