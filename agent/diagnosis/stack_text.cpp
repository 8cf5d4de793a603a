#include "agent/diagnosis/stack_text.h"

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t listed_lines_max = 60;

struct Line {
    std::string_view word;
    std::string_view about;
};

Line parted(std::string_view line) {
    const auto space = line.find(' ');
    if (space == std::string_view::npos) return {};
    return {line.substr(0, space), line.substr(space + 1)};
}

/// "12 frames in libpython3.11.so.1.0" is no place.
bool is_a_place(std::string_view native) {
    return !native.empty() && (native.front() < '0' || native.front() > '9') && !native.starts_with("??");
}

/// Of an installed package or of Python itself: "broadcast (/opt/lib/python3.11/site-packages/torch/x.py:7)".
bool is_of_a_library(std::string_view python) {
    for (const std::string_view folder : {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "})
        if (python.find(folder) != std::string_view::npos) return true;
    return false;
}

}  // namespace

StackText read_stacks(std::string_view output) {
    StackText out;
    std::string_view python, native, own, program;
    int threads = 0;
    output = output.substr(0, output.rfind('\n') + 1);
    for (const auto line : split(output, '\n')) {
        const auto [word, about] = parted(line);
        const bool is_frame = word == "python" || word == "native";
        if (word == "thread") ++threads;
        if (word == "python" && threads == 1 && python.empty()) python = about;
        if (word == "python" && threads == 1 && program.empty() && !is_of_a_library(about)) program = about;
        if (word == "native" && threads == 1 && native.empty() && is_a_place(about)) native = about;
        const bool is_own = is_a_place(about) && !about.ends_with("(libc.so.6)");
        if (word == "native" && threads == 1 && own.empty() && is_own) own = about;
        if (out.lines.size() >= listed_lines_max) continue;
        if (word == "thread") out.lines.push_back(cat("  thread ", about, ':'));
        if (is_frame) out.lines.push_back(cat("    ", about));
        if (word == "note") out.lines.push_back(cat("    (", about, ')'));
    }
    out.top = std::string(python.empty() ? native : python);
    if (!python.empty() && !native.empty()) out.top += cat(", in ", native);
    if (python.empty() && !own.empty() && own != native) out.top += cat(", from ", own);
    out.place = std::string(!python.empty() ? python : own.empty() ? native : own);
    if (!program.empty() && program != python) out.place += cat(", from ", program);
    return out;
}

}  // namespace muster::agent
