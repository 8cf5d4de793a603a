#include "agent/probes/stacks/python_frames.h"

#include <cstring>
#include <map>

#include "tests/support/catch.h"

using namespace muster::agent;

namespace {

/// Memory of a process that is none.
struct Memory {
    std::map<std::uint64_t, std::uint8_t> bytes;

    template <class T>
    void put(std::uint64_t at, T value) {
        std::uint8_t raw[sizeof value];
        std::memcpy(raw, &value, sizeof value);
        for (std::size_t i = 0; i < sizeof value; ++i) bytes[at + i] = raw[i];
    }
    void pointer(std::uint64_t at, std::uint64_t value) { put(at, value); }
    [[nodiscard]] ReadMemory reader() const {
        return [this](std::uint64_t at, void* into, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i) {
                const auto found = bytes.find(at + i);
                if (found == bytes.end()) return false;
                static_cast<std::uint8_t*>(into)[i] = found->second;
            }
            return true;
        };
    }
};

const PythonLayout layout = python_layout(0x030b07f0, {}).value();

/// A str of letters of `letter_bytes`.
void put_text(Memory& memory, std::uint64_t at, const std::u32string& text, std::uint32_t letter_bytes, bool ascii) {
    memory.pointer(at + layout.text_length, text.size());
    memory.put(at + layout.text_state, letter_bytes << 2 | 1U << 5 | (ascii ? 1U << 6 : 0U));
    auto place = at + (ascii ? layout.ascii_data : layout.compact_data);
    for (const auto letter : text)
        for (std::uint32_t k = 0; k < letter_bytes; ++k)
            memory.bytes[place++] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(letter) >> 8 * k);
}

/// One interpreter with one thread, whose innermost frame is at 0x5000.
Memory one_thread() {
    Memory memory;
    memory.pointer(0x1000 + layout.interpreters_head, 0x2000);
    memory.pointer(0x2000 + layout.interpreter_next, 0);
    memory.pointer(0x2000 + layout.threads_head, 0x3000);
    memory.pointer(0x3000 + layout.thread_next, 0);
    memory.pointer(0x3000 + layout.native_thread_id, 42);
    memory.pointer(0x3000 + *layout.cframe, 0x4000);
    memory.pointer(0x4000 + layout.current_frame, 0x5000);
    memory.pointer(0x5000 + layout.previous, 0);
    memory.put(0x5000 + layout.owner, std::uint8_t{0});
    memory.pointer(0x5000 + layout.code, 0x6000);
    memory.pointer(0x5000 + layout.instruction, 0x6000 + layout.bytecode + 4);
    memory.pointer(0x6000 + layout.qualname, 0x7000);
    memory.pointer(0x6000 + layout.filename, 0x8000);
    memory.put(0x6000 + layout.first_line, std::int32_t{10});
    memory.pointer(0x6000 + layout.line_table, 0x9000);
    put_text(memory, 0x7000, U"f\u00e9", 1, false);
    put_text(memory, 0x8000, U"a.py", 1, true);
    memory.pointer(0x9000 + layout.bytes_size, 3);
    // Two units on the first line, then four a line further, without columns.
    const std::uint8_t table[] = {0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 3};
    for (std::size_t i = 0; i < 3; ++i) memory.bytes[0x9000 + layout.bytes_data + i] = table[i];
    return memory;
}

}  // namespace

TEST_CASE("lines follow the table: short entries, one-line entries, large steps, backwards, none") {
    // f: kind 0 is on the same line, kinds 10 to 12 are 0 to 2 lines further, 13 and 14 give a signed step, 15 no line.
    const std::uint8_t table[] = {0x80 | 0 << 3 | 0,  0x11,                    // 1 unit, same line
                                  0x80 | 12 << 3 | 1, 0x01,      0x02,         // 2 units, two further
                                  0x80 | 13 << 3 | 0, 0x40 | 40, 0x01,         // 1 unit, (40 + 64) / 2 = 52 further
                                  0x80 | 15 << 3 | 0,                          // 1 unit, no line
                                  0x80 | 14 << 3 | 0, 0x07,      0,    1, 1};  // 1 unit, three back
    CHECK(line_at(table, 100, 0) == 100);
    CHECK(line_at(table, 100, 2) == 102);
    CHECK(line_at(table, 100, 4) == 102);
    CHECK(line_at(table, 100, 6) == 154);
    CHECK(line_at(table, 100, 8) == 0);
    CHECK(line_at(table, 100, 10) == 151);
    CHECK(line_at(table, 100, 12) == 0);
    CHECK(line_at({}, 100, 0) == 0);
    CHECK(line_at(std::vector<std::uint8_t>{0x11, 0x12}, 100, 0) == 0);
    CHECK(line_at(std::vector<std::uint8_t>{0x80 | 13 << 3}, 100, 0) == 100);  // cut off
}

TEST_CASE("a thread's frames are read with function, file and line") {
    const auto memory = one_thread();
    const auto threads = python_threads(layout, 0x1000, memory.reader());
    REQUIRE(threads.size() == 1);
    CHECK(threads[0].native_id == 42);
    REQUIRE(threads[0].frames.size() == 1);
    CHECK(threads[0].frames[0] == PythonFrame{"f\u00e9", "a.py", 10});
}

TEST_CASE("chains that bite their tail end, and memory that is not there is no frame") {
    auto memory = one_thread();
    memory.pointer(0x5000 + layout.previous, 0x5000);
    memory.pointer(0x3000 + layout.thread_next, 0x3000);
    memory.pointer(0x2000 + layout.interpreter_next, 0x2000);
    const auto threads = python_threads(layout, 0x1000, memory.reader());
    CHECK(threads.size() == 8 * 256);
    CHECK(threads[0].frames.size() == 64);
    memory = one_thread();
    for (const std::uint64_t cut : {0x3000, 0x4000, 0x5000, 0x6000, 0x7000, 0x8000, 0x9000}) {
        auto damaged = memory;
        damaged.bytes.erase(damaged.bytes.lower_bound(cut), damaged.bytes.lower_bound(cut + 0x1000));
        for (const auto& thread : python_threads(layout, 0x1000, damaged.reader())) CHECK(thread.frames.size() <= 1);
    }
    CHECK(python_threads(layout, 0x1000, Memory{}.reader()).empty());
}

TEST_CASE("lengths that cannot be are not believed") {
    auto memory = one_thread();
    memory.pointer(0x7000 + layout.text_length, ~std::uint64_t{0});
    memory.pointer(0x9000 + layout.bytes_size, ~std::uint64_t{0});
    const auto threads = python_threads(layout, 0x1000, memory.reader());
    REQUIRE(threads.size() == 1);
    CHECK(threads[0].frames[0] == PythonFrame{"?", "a.py", 0});
}

TEST_CASE("of versions that are not known, and of interpreters without their lock, nothing is claimed") {
    CHECK(python_layout(0x030c01f0, {}).has_value());
    CHECK_FALSE(python_layout(0x030a00f0, {}).has_value());
    CHECK_FALSE(python_layout(0x030e00f0, {}).has_value());
    CHECK_FALSE(python_layout(0x030d00f0, {}).has_value());
    std::vector<std::uint64_t> words(debug_offsets_bytes / 8);
    std::memcpy(words.data(), "xdebugpy", 8);
    words[23] = 72;
    const auto told = python_layout(0x030d00f0, words);
    REQUIRE(told.has_value());
    CHECK(told->current_frame == 72);
    CHECK_FALSE(told->cframe.has_value());
    words[2] = 1;
    CHECK_FALSE(python_layout(0x030d00f0, words).has_value());
}
