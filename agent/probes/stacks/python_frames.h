// Reads the Python frames of a process from its memory, without its cooperation. Nothing in it is changed or run. The
// process may continue meanwhile, so the data is not trusted: every chain has a limit, and impossible values are left
// out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "agent/probes/stacks/python_layout.h"

namespace muster::agent {

/// Copies so many bytes from there in the other process; false where it has no such memory.
using ReadMemory = std::function<bool(std::uint64_t address, void* into, std::size_t size_bytes)>;

struct PythonFrame {
    std::string function;  ///< "Trainer.step"
    std::string file;
    std::int64_t line = 0;  ///< 0: unknown.
    friend bool operator==(const PythonFrame&, const PythonFrame&) = default;
};

struct PythonThread {
    std::int64_t native_id = 0;       ///< As returned by gettid().
    std::vector<PythonFrame> frames;  ///< Innermost first.
};

/// `runtime` is where _PyRuntime lies.
std::vector<PythonThread> python_threads(const PythonLayout& layout, std::uint64_t runtime, const ReadMemory& read);

/// The line of the instruction `offset_bytes` into the code, by co_linetable; 0: it has none. The format is that of
/// CPython's Objects/locations.md (3.11 and later): entries of a byte with kind and length, then varints.
std::int64_t line_at(std::span<const std::uint8_t> table, std::int64_t first_line, std::uint64_t offset_bytes);

}  // namespace muster::agent
