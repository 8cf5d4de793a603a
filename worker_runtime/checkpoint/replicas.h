// Compares the replicated tensors of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/checkpoint.h"
#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

struct Replica {
    std::string name;
    std::uint32_t checksum = 0;  ///< CRC-32C of name, type, shape and elements
};

/// Fills a part of a tensor's memory before it is read.
using FillPart = std::function<Result<void>(std::span<std::byte>)>;

/// Of this rank's replicated tensors, sorted by name: the order of the tensors may differ between ranks. Reads them
/// all, in parts of 1 MiB. The parts that `fill` is called with are the same on all ranks, and in the same order; its
/// error ends this.
Result<std::vector<Replica>> replicas_of(const std::vector<StateTensor>& tensors, const FillPart& fill = {});

/// A collective. invalid_argument, on all ranks alike, if the replicated tensors differ between ranks: the text names
/// the first tensor that differs and the ranks that differ from rank 0, and ends with `advice`. Tensors are compared by
/// CRC-32C, so one difference in four billion is missed.
Result<void> compare_replicas(Communicator& world, const std::vector<Replica>& replicas, std::string_view advice,
                              Duration timeout);

}  // namespace muster::runtime
