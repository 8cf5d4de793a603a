// Reading rank files past the page cache, and comparing every byte with the checksums.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/durable_file.h"

namespace muster::runtime {

struct ByteRange {
    std::uint64_t begin = 0, end = 0;
};

/// Gets the bytes of the ranges in order, in parts of any size.
using ByteSink = std::function<Result<void>(std::span<const std::byte> bytes)>;

/// Reads the ranges (in ascending order, apart from each other) of a file; a second thread reads ahead while `sink`
/// works. io: the system's words. bad_frame: the file ends before a range does. An error of `sink` ends it.
Result<void> read_ranges(const std::string& path, const std::vector<ByteRange>& ranges, const ByteSink& sink);

/// The checksum of the whole file, when each of its pieces has the one that its head says. bad_frame names the first
/// tensor that has not.
Result<std::uint32_t> verify_rank_file(const std::string& path);

}  // namespace muster::runtime
