// Every rank gives some bytes and gets everybody's, in rank order, through a key-value store.
//
// Rank r writes the key "<prefix>/<n>/<r>" for the n-th gathering and waits for the others' keys. It deletes its key of
// gathering n-1 after it has read all of n: whoever wrote into n had finished reading n-1, so nobody misses it. The
// store so holds at most two gatherings, however long the training is. The prefix must differ between rounds wherever
// the store outlives a round (torchrun's does).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// The three verbs that a gathering needs of a store. Every call has a deadline of its own.
class SharedStore {
  public:
    virtual ~SharedStore() = default;
    virtual Result<void> set(const std::string& key, const std::string& value) = 0;
    /// Waits until the key is there.
    virtual Result<std::string> wait_get(const std::string& key) = 0;
    virtual Result<void> erase(const std::string& key) = 0;
};

struct Place {
    std::uint32_t rank = 0;
    std::uint32_t world = 1;
};

class AllGather {
  public:
    /// `store` must outlive this. All ranks use the same prefix and gather equally often.
    AllGather(SharedStore& store, Place place, std::string prefix);

    /// Everybody's bytes, index = rank. After a failure no further gathering can succeed.
    Result<std::vector<std::string>> gather(const std::string& mine);

  private:
    [[nodiscard]] std::string key(std::uint64_t gathering, std::uint32_t rank) const;

    SharedStore& store_;
    const Place place_;
    const std::string prefix_;
    std::uint64_t gathering_count_ = 0;
};

}  // namespace muster::runtime
