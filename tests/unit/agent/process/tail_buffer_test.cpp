#include "agent/output/tail_buffer.h"

#include "tests/support/catch.h"

using muster::agent::TailBuffer;

TEST_CASE("a short stream is kept whole") {
    TailBuffer tail(10);
    tail.add("ab\n");
    tail.add("cd");
    CHECK(tail.take() == "ab\ncd");
    CHECK(tail.take().empty());
}

TEST_CASE("of a long stream the end is kept, from the beginning of a line") {
    TailBuffer tail(10);
    for (int i = 0; i < 1000; ++i) tail.add("line " + std::to_string(i) + "\n");
    CHECK(tail.take() == "line 999\n");
}

TEST_CASE("a chunk larger than the limit keeps its own end") {
    TailBuffer tail(4);
    tail.add("xy");
    tail.add("0123456789");
    CHECK(tail.take() == "6789");
    tail.add("abcd");
    CHECK(tail.take() == "abcd");
}

TEST_CASE("however it is fed, the last bytes are the same") {
    const std::string text(1000, 'a');
    for (std::size_t piece = 1; piece < 40; ++piece) {
        TailBuffer tail(16);
        for (std::size_t at = 0; at < text.size(); at += piece) tail.add(std::string_view(text).substr(at, piece));
        CHECK(tail.take() == std::string(16, 'a'));
    }
}
