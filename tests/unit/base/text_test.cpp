#include "rendezvous/base/text.h"

#include <cstdint>

#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("cat joins text, characters, booleans and numbers") {
    CHECK(cat("a", 'b', 3, true, std::string("c"), -1.5) == "ab3truec-1.5");
}

TEST_CASE("split keeps empty pieces") {
    CHECK(split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
    CHECK(split("", ',') == std::vector<std::string_view>{""});
}

TEST_CASE("trim removes blanks at both ends only") {
    CHECK(trim(" \ta b\r\n") == "a b");
    CHECK(trim(" \t ").empty());
}

TEST_CASE("base_name is what follows the last slash") {
    CHECK(base_name("/a/b.py") == "b.py");
    CHECK(base_name("b.py") == "b.py");
    CHECK(base_name("a/").empty());
}

TEST_CASE("join puts the separator between the parts") {
    CHECK(join({"a", "", "b"}, ",") == "a,,b");
    CHECK(join({"", "a"}, ",") == ",a");
    CHECK(join({}, ",").empty());
}

TEST_CASE("parse_number takes the whole text or nothing") {
    std::uint8_t value = 0;
    CHECK(parse_number("255", value));
    CHECK(value == 255);
    for (const char* bad : {"", " 1", "1 ", "256", "-1", "0x1", "1.0"}) CHECK_FALSE(parse_number(bad, value));
}

TEST_CASE("edit distance counts single-character edits") {
    CHECK(edit_distance("nnodes", "nnodes") == 0);
    CHECK(edit_distance("nodes", "nnodes") == 1);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("durations are described for people") {
    CHECK(describe(Duration(350ms)) == "350 ms");
    CHECK(describe(Duration(2500ms)) == "2.5 s");
    CHECK(describe(Duration(30s)) == "30 s");
    CHECK(describe(Duration(12min)) == "12 min");
}
