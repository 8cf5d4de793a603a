#include "agent/probes/stacks/python_layout.h"

#include <cstring>

namespace muster::agent {

namespace {

constexpr PythonLayout layout_3_11{.interpreters_head = 40,
                                   .interpreter_next = 0,
                                   .threads_head = 16,
                                   .thread_next = 8,
                                   .native_thread_id = 160,
                                   .cframe = 56,
                                   .current_frame = 8,
                                   .previous = 48,
                                   .code = 32,
                                   .instruction = 56,
                                   .owner = 69,
                                   .filename = 112,
                                   .qualname = 128,
                                   .line_table = 136,
                                   .first_line = 72,
                                   .bytecode = 184,
                                   .bytes_size = 16,
                                   .bytes_data = 32,
                                   .text_length = 16,
                                   .text_state = 32,
                                   .ascii_data = 48,
                                   .compact_data = 72};

constexpr PythonLayout layout_3_12 = [] {
    auto layout = layout_3_11;
    layout.threads_head = 72;
    layout.native_thread_id = 144;
    layout.current_frame = 0;
    layout.previous = 8;
    layout.code = 0;
    layout.owner = 70;
    layout.first_line = 68;
    layout.bytecode = 192;
    layout.ascii_data = 40;
    layout.compact_data = 56;
    return layout;
}();

/// Which of the words of _Py_DebugOffsets (Include/internal/pycore_runtime.h of 3.13) is which.
std::optional<PythonLayout> told_by(std::span<const std::uint64_t> words) {
    if (words.size_bytes() < debug_offsets_bytes || std::memcmp(words.data(), "xdebugpy", 8) != 0) return std::nullopt;
    const bool free_threaded = words[2] != 0;
    if (free_threaded) return std::nullopt;             // its frames change under the reader
    constexpr std::uint64_t compact_beyond_ascii = 16;  // the length in UTF-8, and where that lies
    return PythonLayout{.interpreters_head = words[5],
                        .interpreter_next = words[8],
                        .threads_head = words[9],
                        .thread_next = words[21],
                        .native_thread_id = words[25],
                        .cframe = std::nullopt,
                        .current_frame = words[23],
                        .previous = words[29],
                        .code = words[30],
                        .instruction = words[31],
                        .owner = words[33],
                        .filename = words[35],
                        .qualname = words[37],
                        .line_table = words[38],
                        .first_line = words[39],
                        .bytecode = words[43],
                        .bytes_size = words[65],
                        .bytes_data = words[66],
                        .text_length = words[69],
                        .text_state = words[68],
                        .ascii_data = words[70],
                        .compact_data = words[70] + compact_beyond_ascii};
}

}  // namespace

std::optional<PythonLayout> python_layout(std::uint64_t version, std::span<const std::uint64_t> runtime) {
    if constexpr (sizeof(void*) != 8) return std::nullopt;
    switch (version >> 16) {
        case 0x030b: return layout_3_11;
        case 0x030c: return layout_3_12;
        case 0x030d: return told_by(runtime);
        default: return std::nullopt;
    }
}

}  // namespace muster::agent
