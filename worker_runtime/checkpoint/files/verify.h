// Reads rank files past the page cache, and compares every byte with the checksums.
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

/// Receives the bytes of the ranges in order, in parts of any size.
using ByteSink = std::function<Result<void>(std::span<const std::byte> bytes)>;

/// Reads ranges of a file (in ascending order, not overlapping); a second thread reads ahead while `sink` works. io:
/// the system's message. bad_frame: the file ends before a range does. An error of `sink` ends the read and is
/// returned.
Result<void> read_ranges(const std::string& path, const std::vector<ByteRange>& ranges, const ByteSink& sink);

/// Returns the checksum of the whole file if each of its pieces has the checksum in its head. bad_frame names the first
/// tensor that differs.
Result<std::uint32_t> verify_rank_file(const std::string& path);

}  // namespace muster::runtime
