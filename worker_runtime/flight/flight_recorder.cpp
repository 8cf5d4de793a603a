#include "worker_runtime/flight/flight_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "rendezvous/base/kernel/boot_id.h"
#include "rendezvous/base/reserve_space.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/flight/flight_sweep.h"

namespace muster::runtime {

namespace {

std::int64_t monotonic_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::int64_t wall_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

template <std::size_t Size>
void copy_text(char (&field)[Size], std::string_view text) {
    const auto size = std::min(text.size(), Size - 1);
    std::memcpy(field, text.data(), size);
    field[size] = '\0';
}

std::string ring_path(const FlightRecorder::Facts& facts, const std::string& folder) {
    return cat(folder, '/', flight_file_name(facts.job, facts.rank));
}

Result<FileDescriptor> open_ring(const FlightRecorder::Facts& facts, const std::string& folder) {
    if (folder.empty()) {
        FileDescriptor memory(::memfd_create("muster flight record", MFD_CLOEXEC));
        if (!memory.valid()) return error_from_errno(errno, "make memory for the flight record");
        return memory;
    }
    sweep_flight_records(folder, facts.job, facts.world);
    const std::string path = ring_path(facts, folder);
    // Creates a new file instead of truncating the old one: a process that still maps the old one would get SIGBUS.
    ::unlink(path.c_str());
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
    if (!file.valid()) return error_from_errno(errno, cat("write the flight record (MUSTER_FLIGHT_DIR) ", path));
    return file;
}

}  // namespace

Result<std::shared_ptr<FlightRecorder>> FlightRecorder::open(const Facts& facts, const std::string& folder) {
    auto file = MUSTER_TRY(open_ring(facts, folder));
    // The space is reserved here, so that a full disk is an error now and not a SIGBUS at the first operation.
    if (const int failed = reserve_space(file.get(), 0, flight_ring_bytes); failed != 0) {
        // muster flight refuses a folder with a file that is no record.
        if (!folder.empty()) ::unlink(ring_path(facts, folder).c_str());
        return error_from_errno(failed, cat("reserve ", flight_ring_bytes >> 10, " KiB for the flight record",
                                            folder.empty() ? "" : cat(" in MUSTER_FLIGHT_DIR, ", folder)));
    }
    void* const memory = ::mmap(nullptr, flight_ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return error_from_errno(errno, "map the flight record");
    std::shared_ptr<FlightRecorder> recorder(new FlightRecorder(std::move(file), static_cast<std::byte*>(memory)));
    FlightHeader& header = *new (memory) FlightHeader;
    header.rank = facts.rank;
    header.world = facts.world;
    header.round = facts.round;
    header.pid = ::getpid();
    header.wall_minus_monotonic_ns = wall_ns() - monotonic_ns();
    copy_text(header.host, host_name());
    copy_text(header.boot_id, boot_id());
    return recorder;
}

FlightRecorder::~FlightRecorder() {
    ::munmap(memory_, flight_ring_bytes);
}

std::uint32_t FlightRecorder::add_group(std::string_view name, int rank, int size) {
    const std::lock_guard lock(mutex_);
    FlightHeader& all = header();
    if (all.group_count == flight_group_count_max) {
        all.last_is_shared = 1;
        return flight_group_count_max - 1;
    }
    const auto index = all.group_count;
    copy_text(all.groups[index], name);
    all.group_ranks[index] = rank;
    all.group_sizes[index] = size;
    all.group_count = index + 1;
    return index;
}

std::uint64_t FlightRecorder::begin(std::uint32_t group, std::uint64_t number, const Operation& operation) {
    const auto place = std::atomic_ref(header().next).fetch_add(1, std::memory_order_relaxed);
    entry(place) = {.number = number,
                    .count = operation.count,
                    .started_ns = monotonic_ns(),
                    .group = group,
                    .tag = operation.tag,
                    .peer = operation.peer,
                    .kind = operation.kind,
                    .type = operation.type,
                    .reduce = operation.reduce};
    return place;
}

void FlightRecorder::end(std::uint64_t place, bool good) {
    // A receive that has waited for so many operations has lost its entry to one of them.
    const auto begun = std::atomic_ref(header().next).load(std::memory_order_relaxed);
    if (begun - place > flight_entry_count) return;
    FlightEntry& mine = entry(place);
    mine.ended_ns = monotonic_ns();
    mine.state = good ? FlightState::done : FlightState::failed;
}

void FlightRecorder::note_failure(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (header().failure[0] == '\0') copy_text(header().failure, text);
}

}  // namespace muster::runtime
