// Offsets of CPython's structures that make up a stack. They change with each minor version. Those of 3.11 and 3.12 are
// listed here (Include/internal of these versions, 64 bit); from 3.13 on the interpreter publishes them
// (_Py_DebugOffsets, at the beginning of _PyRuntime).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace muster::agent {

/// Offsets in bytes from the beginning of each structure.
struct PythonLayout {
    std::uint64_t interpreters_head;  ///< In _PyRuntimeState.
    std::uint64_t interpreter_next, threads_head;
    std::uint64_t thread_next, native_thread_id;
    std::optional<std::uint64_t> cframe;               ///< In the thread's state. Until 3.12 it contains current_frame.
    std::uint64_t current_frame;                       ///< In the cframe, else in the thread's state.
    std::uint64_t previous, code, instruction, owner;  ///< In _PyInterpreterFrame.
    std::uint64_t filename, qualname, line_table, first_line, bytecode;  ///< In PyCodeObject.
    std::uint64_t bytes_size, bytes_data;
    std::uint64_t text_length, text_state;
    std::uint64_t ascii_data, compact_data;  ///< Offsets of the characters of a str.

    friend bool operator==(const PythonLayout&, const PythonLayout&) = default;
};

/// Those of _Py_DebugOffsets in 3.13.
inline constexpr std::size_t debug_offsets_bytes = 73 * sizeof(std::uint64_t);

/// `version` is Py_Version (0x030b07f0 for 3.11.7). `runtime` are the first debug_offsets_bytes of _PyRuntime, looked
/// at from 3.13 on. Nothing for a version that is not known, or an interpreter built without its lock.
std::optional<PythonLayout> python_layout(std::uint64_t version, std::span<const std::uint64_t> runtime);

}  // namespace muster::agent
