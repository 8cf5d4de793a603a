// Zeroed memory of this process alone, as a Memory object.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "muster/communicator.h"

namespace muster::runtime {

inline Memory private_memory(std::size_t size_bytes) {
    struct Held {
        std::vector<std::byte> bytes;
        std::span<std::byte> span;
    };
    auto held = std::make_shared<Held>();
    held->bytes.resize(size_bytes);
    held->span = held->bytes;
    return Memory(std::shared_ptr<std::span<std::byte>>(held, &held->span));
}

}  // namespace muster::runtime
