#include "agent/probes/stacks/python_frames.h"

#include <algorithm>

namespace muster::agent {

namespace {

constexpr int interpreters_max = 8;
constexpr int threads_max = 256;
constexpr int frames_max = 64;
constexpr std::uint64_t text_letters_max = 300;
constexpr std::uint64_t line_table_bytes_max = 1 << 20;
constexpr std::uint8_t owned_by_c_stack = 3;  // 3.12 and later: a frame that stands for a call from C

/// The varints of a line table: six bits each, the lowest first.
class Varints {
  public:
    Varints(std::span<const std::uint8_t> bytes, std::size_t at) : bytes_(bytes), at_(at) {}

    std::uint64_t take() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; at_ < bytes_.size() && shift < 60; shift += 6) {
            const auto byte = bytes_[at_++];
            value |= std::uint64_t{byte & 0x3fU} << shift;
            if ((byte & 0x40U) == 0) break;
        }
        return value;
    }
    /// The sign is the lowest bit.
    std::int64_t take_signed() {
        const auto value = take();
        const auto size = static_cast<std::int64_t>(value >> 1);
        return (value & 1) != 0 ? -size : size;
    }

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_;
};

void append_utf8(std::string& out, std::uint32_t letter) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (letter < 0x20) return put('?');  // no line of ours is to be broken
    if (letter < 0x80) return put(letter);
    if (letter < 0x800) {
        put(0xc0 | letter >> 6);
    } else {
        if (letter < 0x10000) {
            put(0xe0 | letter >> 12);
        } else {
            put(0xf0 | (letter >> 18 & 7));
            put(0x80 | (letter >> 12 & 0x3f));
        }
        put(0x80 | (letter >> 6 & 0x3f));
    }
    put(0x80 | (letter & 0x3f));
}

class Reader {
  public:
    Reader(const PythonLayout& layout, const ReadMemory& read) : layout_(layout), read_(read) {}

    template <class T>
    T value(std::uint64_t address) const {
        T out{};
        return address != 0 && read_(address, &out, sizeof out) ? out : T{};
    }
    std::uint64_t pointer(std::uint64_t address) const { return value<std::uint64_t>(address); }

    std::string text(std::uint64_t object) const {
        const auto length = std::min(pointer(object + layout_.text_length), text_letters_max);
        const auto state = value<std::uint32_t>(object + layout_.text_state);
        const auto letter_bytes = state >> 2 & 7;
        const bool compact = (state >> 5 & 1) != 0;
        const bool ascii = (state >> 6 & 1) != 0;
        if (!compact || (letter_bytes != 1 && letter_bytes != 2 && letter_bytes != 4)) return "?";
        std::vector<std::uint8_t> bytes(length * letter_bytes);
        const auto at = object + (ascii ? layout_.ascii_data : layout_.compact_data);
        if (bytes.empty() || !read_(at, bytes.data(), bytes.size())) return "?";
        std::string out;
        for (std::size_t i = 0; i < bytes.size(); i += letter_bytes) {
            std::uint32_t letter = 0;
            for (std::uint32_t k = 0; k < letter_bytes; ++k) letter |= std::uint32_t{bytes[i + k]} << 8 * k;
            append_utf8(out, letter);
        }
        return out;
    }

    PythonFrame frame(std::uint64_t code, std::uint64_t instruction) const {
        PythonFrame out{text(pointer(code + layout_.qualname)), text(pointer(code + layout_.filename)), 0};
        const std::int64_t first_line = value<std::int32_t>(code + layout_.first_line);
        const auto begin = code + layout_.bytecode;
        if (instruction < begin) {  // not begun yet
            out.line = first_line;
            return out;
        }
        const auto table = pointer(code + layout_.line_table);
        std::vector<std::uint8_t> bytes(std::min(pointer(table + layout_.bytes_size), line_table_bytes_max));
        if (!bytes.empty() && read_(table + layout_.bytes_data, bytes.data(), bytes.size()))
            out.line = line_at(bytes, first_line, instruction - begin);
        return out;
    }

    std::vector<PythonFrame> frames(std::uint64_t thread) const {
        const auto holder = layout_.cframe ? pointer(thread + *layout_.cframe) : thread;
        if (holder == 0) return {};
        std::vector<PythonFrame> out;
        auto at = pointer(holder + layout_.current_frame);
        for (int i = 0; at != 0 && i < frames_max; ++i, at = pointer(at + layout_.previous)) {
            const bool stands_for_c = value<std::uint8_t>(at + layout_.owner) == owned_by_c_stack;
            const auto code = pointer(at + layout_.code);
            if (!stands_for_c && code != 0) out.push_back(frame(code, pointer(at + layout_.instruction)));
        }
        return out;
    }

  private:
    const PythonLayout& layout_;
    const ReadMemory& read_;
};

}  // namespace

std::int64_t line_at(std::span<const std::uint8_t> table, std::int64_t first_line, std::uint64_t offset_bytes) {
    constexpr unsigned one_line_first = 10, one_line_last = 12, no_columns = 13, with_columns = 14, no_place = 15;
    std::int64_t line = first_line;
    std::uint64_t end = 0;
    for (std::size_t at = 0; at < table.size();) {
        const auto head = table[at];
        if ((head & 0x80) == 0) return 0;  // no beginning of an entry: this is no line table
        const unsigned kind = head >> 3 & 15;
        end += ((head & 7U) + 1) * 2;  // in units of two bytes
        if (kind >= one_line_first && kind <= one_line_last) line += kind - one_line_first;
        if (kind == no_columns || kind == with_columns) line += Varints(table, at + 1).take_signed();
        if (offset_bytes < end) return kind == no_place ? 0 : line;
        ++at;
        while (at < table.size() && (table[at] & 0x80) == 0) ++at;
    }
    return 0;
}

std::vector<PythonThread> python_threads(const PythonLayout& layout, std::uint64_t runtime, const ReadMemory& read) {
    const Reader reader(layout, read);
    std::vector<PythonThread> out;
    auto interpreter = reader.pointer(runtime + layout.interpreters_head);
    for (int i = 0; interpreter != 0 && i < interpreters_max; ++i) {
        auto thread = reader.pointer(interpreter + layout.threads_head);
        for (int k = 0; thread != 0 && k < threads_max; ++k) {
            out.push_back({reader.value<std::int64_t>(thread + layout.native_thread_id), reader.frames(thread)});
            thread = reader.pointer(thread + layout.thread_next);
        }
        interpreter = reader.pointer(interpreter + layout.interpreter_next);
    }
    return out;
}

}  // namespace muster::agent
