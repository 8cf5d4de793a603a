#include "tests/worker_programs/injected_fault.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

struct Kind {
    std::string_view name;
    FaultKind kind;
};

constexpr std::array kinds{Kind{"crash", FaultKind::crash},     Kind{"memory", FaultKind::memory},
                           Kind{"bus", FaultKind::bus},         Kind{"disk", FaultKind::disk},
                           Kind{"segment", FaultKind::segment}, Kind{"library", FaultKind::library},
                           Kind{"swap", FaultKind::swap},       Kind{"size", FaultKind::size},
                           Kind{"stop", FaultKind::stop},       Kind{"slow", FaultKind::slow}};

constexpr std::size_t piece_bytes = std::size_t{16} << 20;
constexpr std::size_t disk_bytes_max = std::size_t{1} << 30;
constexpr std::size_t memory_bytes_max = std::size_t{8} << 30;  ///< Maximum if no limit applies, to protect the host.

void take_memory() {
    std::vector<std::vector<char>> taken;
    while (taken.size() < memory_bytes_max / piece_bytes) taken.emplace_back(piece_bytes, 'x');
    throw std::runtime_error("8 GiB were allocated without a failure");
}

/// A named file, which stays: so that it can be seen that /dev/shm is full.
Result<void> fill_shared_memory() {
    const auto path = cat("/dev/shm/rehearsed.", ::getpid());
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid() || ::ftruncate(file.get(), memory_bytes_max) != 0) return error_from_errno(errno, path);
    auto* memory = ::mmap(nullptr, memory_bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return error_from_errno(errno, path);
    for (std::size_t at = 0; at < memory_bytes_max; at += piece_bytes)
        std::memset(static_cast<char*>(memory) + at, 1, piece_bytes);
    ::unlink(path.c_str());
    return Error{Errc::invalid_argument, "/dev/shm took 8 GiB; give it a smaller one"};
}

Result<void> fill_disk(const std::string& folder) {
    const auto path = cat(folder, "/rehearsed.", ::getpid());
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid()) return error_from_errno(errno, path);
    const std::vector<char> piece(piece_bytes, 'x');
    for (std::size_t i = 0; i < disk_bytes_max / piece_bytes; ++i)
        if (::write(file.get(), piece.data(), piece.size()) < 0) return error_from_errno(errno, cat("write ", path));
    ::unlink(path.c_str());
    return Error{Errc::invalid_argument, cat(folder, " took 1 GiB; give it a smaller disk")};
}

[[noreturn]] void need_library() {
    if (::dlopen("librehearsed.so.1", RTLD_NOW) == nullptr) std::fprintf(stderr, "faulty_trainer: %s\n", ::dlerror());
    ::_exit(127);
}

}  // namespace

bool parse_injected_fault(const std::string& text, InjectedFault& fault) {
    const auto parts = split(text, ':');
    if (parts.size() != 3) return false;
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& one) { return one.name == parts[0]; });
    if (known == kinds.end()) return false;
    fault.kind = known->kind;
    return parse_number(parts[1], fault.rank) && parse_number(parts[2], fault.step) && fault.step > 0;
}

Result<void> commit_if_due(const InjectedFault& fault, int rank, std::uint64_t step, const FaultPlace& place) {
    if (fault.step == 0 || rank != fault.rank || step < fault.step) return {};
    if (step > fault.step && fault.kind != FaultKind::slow) return {};
    float values[7] = {};
    volatile int* volatile nowhere = nullptr;  // volatile, or the compiler knows better
    switch (fault.kind) {
        case FaultKind::crash: throw std::runtime_error("a rehearsed crash");
        case FaultKind::memory: take_memory(); break;
        case FaultKind::bus: return fill_shared_memory();
        case FaultKind::disk: return fill_disk(place.checkpoint_dir);
        case FaultKind::segment: *nowhere = 1; break;
        case FaultKind::library: need_library();
        case FaultKind::swap: return place.world.run(barrier());
        case FaultKind::size: return place.world.run(all_reduce(buffer(std::span<float>(values)), ReduceOp::sum));
        case FaultKind::stop: std::raise(SIGSTOP); break;
        case FaultKind::slow:
            std::this_thread::sleep_for(100ms);  // tidy: allow sleep - slowness is what is rehearsed
            break;
    }
    return {};
}

}  // namespace muster::runtime
