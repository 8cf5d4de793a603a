// Writes this rank's flight record. It costs two clock reads and one cache line per operation.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/core/flight_record.h"

namespace muster::runtime {

class FlightRecorder {
  public:
    struct Facts {
        int rank = 0;
        int world = 1;
        std::int64_t round = 0;
        std::string job;
    };

    /// Writes to `folder` (MUSTER_FLIGHT_DIR) as flight_JOB_RANK.ring, or to a memfd if that is empty.
    static Result<std::shared_ptr<FlightRecorder>> open(const Facts& facts, const std::string& folder);
    ~FlightRecorder();
    FlightRecorder& operator=(FlightRecorder&&) = delete;

    /// The memory of the record. The agent receives it and keeps it when this process dies.
    [[nodiscard]] const FileDescriptor& descriptor() const { return descriptor_; }

    /// Adds a group and returns its number for begin(). Those beyond the header's capacity share the last name.
    std::uint32_t add_group(std::string_view name, int rank, int size);
    /// Returns the entry for end(). Thread-safe.
    std::uint64_t begin(std::uint32_t group, std::uint64_t number, const Operation& operation);
    void end(std::uint64_t entry, bool good);
    /// Keeps the first failure.
    void note_failure(std::string_view text);

  private:
    FlightRecorder(FileDescriptor descriptor, std::byte* memory)
        : descriptor_(std::move(descriptor)), memory_(memory) {}
    [[nodiscard]] FlightHeader& header() const { return *reinterpret_cast<FlightHeader*>(memory_); }
    [[nodiscard]] FlightEntry& entry(std::uint64_t number) const {
        return reinterpret_cast<FlightEntry*>(memory_ + sizeof(FlightHeader))[number % flight_entry_count];
    }

    FileDescriptor descriptor_;
    std::byte* memory_;
    std::mutex mutex_;
};

}  // namespace muster::runtime
