// The results of a save in the round's store: each rank publishes the result of its part, and rank 0 the verdict. No
// communicator is used, because training uses them.
//
//   checkpoint/OPENING/K/rank/R    "ok CRC32C", or "failed" and a sentence           K: the number of the save
//   checkpoint/OPENING/K/verdict   "ok FOLDER", or "failed" and a sentence                 written by rank 0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/store.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

class SaveBoard {
  public:
    /// `store` may be null in a world of one. `lost` is called while waiting: an error ends the wait.
    SaveBoard(std::unique_ptr<Store> store, std::string opening, int rank, int world,
              std::function<Result<void>()> lost);

    /// Publishes that this rank's file is flushed, or the reason why it is not.
    Result<void> publish(std::uint64_t save, const Result<std::uint32_t>& checksum);

    /// Rank 0: waits for all ranks' results and returns the checksums of their files. An error names the first rank
    /// that failed or did not answer; cancelled: `lost` returned an error, and some ranks may still be writing.
    Result<std::vector<std::uint32_t>> collect(std::uint64_t save, const Result<std::uint32_t>& own, Instant deadline);

    /// Rank 0: publishes the result of the save.
    Result<void> announce(std::uint64_t save, const Result<std::string>& outcome);

    /// The other ranks: wait for the result of the save.
    Result<std::string> await(std::uint64_t save, Instant deadline);

  private:
    Result<std::uint32_t> result_of(std::uint64_t save, int rank, Instant deadline);
    Result<std::string> get(const std::string& key, Instant deadline);

    [[nodiscard]] std::string rank_key(std::uint64_t save, int rank) const;
    [[nodiscard]] std::string verdict_key(std::uint64_t save) const;

    std::unique_ptr<Store> store_;
    std::string opening_;  // token of this opening of the directory; separates two openings in one round
    int rank_, world_;
    std::function<Result<void>()> lost_;
};

}  // namespace muster::runtime
