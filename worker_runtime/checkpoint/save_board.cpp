#include "worker_runtime/checkpoint/save_board.h"

#include <algorithm>
#include <optional>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/json_text.h"

namespace muster::runtime {

namespace {

/// How often a wait checks that the communicator has not failed.
constexpr Duration check_interval = 500ms;
constexpr std::string_view ok_mark = "ok ", failed_mark = "failed ";

/// Returns the text after "ok"; returns the text after "failed" as an error.
Result<std::string> read_word(const std::string& word) {
    if (word.starts_with(ok_mark)) return word.substr(ok_mark.size());
    if (word.starts_with(failed_mark)) return Error{Errc::io, word.substr(failed_mark.size())};
    return Error{Errc::bad_frame, cat("'", word.substr(0, 80), "' in the store")};
}

}  // namespace

SaveBoard::SaveBoard(std::unique_ptr<Store> store, std::string opening, int rank, int world,
                     std::function<Result<void>()> lost)
    : store_(std::move(store)), opening_(std::move(opening)), rank_(rank), world_(world), lost_(std::move(lost)) {}

std::string SaveBoard::rank_key(std::uint64_t save, int rank) const {
    return cat("checkpoint/", opening_, '/', save, "/rank/", rank);
}

std::string SaveBoard::verdict_key(std::uint64_t save) const {
    return cat("checkpoint/", opening_, '/', save, "/verdict");
}

Result<std::string> SaveBoard::get(const std::string& key, Instant deadline) {
    while (true) {
        const auto now = std::chrono::steady_clock::now();
        auto value = store_->get(key, std::clamp<Duration>(deadline - now, 1ms, check_interval));
        if (value) return value;
        // Asked after any failure: the end of a round also ends the connection to its store.
        if (auto fine = lost_(); !fine) return Error{Errc::cancelled, fine.error().context};
        if (value.error().code != Errc::timed_out || now >= deadline) return value;
    }
}

Result<void> SaveBoard::publish(std::uint64_t save, const Result<std::uint32_t>& checksum) {
    if (rank_ == 0) return {};  // rank 0 has its own result
    return store_->set(rank_key(save, rank_),
                       checksum ? cat(ok_mark, crc_text(*checksum)) : cat(failed_mark, checksum.error().context));
}

Result<std::vector<std::uint32_t>> SaveBoard::collect(std::uint64_t save, const Result<std::uint32_t>& own,
                                                      Instant deadline) {
    if (!own && world_ == 1) return own.error();
    std::optional<Error> failure;
    std::vector<std::uint32_t> checksums(static_cast<std::size_t>(world_));
    // Waits for all ranks, also after a failure: none may still be writing when the draft is removed.
    for (int rank = 0; rank < world_; ++rank) {
        auto told = rank == 0 ? own : result_of(save, rank, deadline);
        if (told) {
            checksums[static_cast<std::size_t>(rank)] = *told;
            continue;
        }
        if (told.error().code == Errc::cancelled) return told.error();
        if (!failure) failure = with_context(told.error(), cat("rank ", rank));
    }
    if (failure) return *failure;
    return checksums;
}

Result<std::uint32_t> SaveBoard::result_of(std::uint64_t save, int rank, Instant deadline) {
    auto word = get(rank_key(save, rank), deadline);
    if (!word) {
        if (word.error().code != Errc::timed_out) return word.error();
        return Error{Errc::timed_out, "has not written its part in time"};
    }
    (void)store_->erase(rank_key(save, rank));
    auto said = MUSTER_TRY(read_word(*word));
    std::uint32_t checksum = 0;
    if (!parse_crc(said, checksum)) return Error{Errc::bad_frame, "reported no checksum"};
    return checksum;
}

Result<void> SaveBoard::announce(std::uint64_t save, const Result<std::string>& outcome) {
    if (world_ == 1) return {};
    // All ranks have published results of this save, so none will read the previous verdict any more.
    if (save > 0) (void)store_->erase(verdict_key(save - 1));
    return store_->set(verdict_key(save), outcome ? cat(ok_mark, *outcome) : cat(failed_mark, outcome.error().context));
}

Result<std::string> SaveBoard::await(std::uint64_t save, Instant deadline) {
    auto word = get(verdict_key(save), deadline);
    if (!word) {
        if (word.error().code != Errc::timed_out) return word.error();
        return Error{Errc::timed_out, "rank 0 has not committed in time"};
    }
    return read_word(*word);
}

}  // namespace muster::runtime
