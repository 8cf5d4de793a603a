#include "rendezvous/base/text/text.h"

#include <cstdint>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/printable.h"
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

TEST_CASE("printable escapes what a terminal obeys and what is not UTF-8, and nothing else") {
    CHECK(printable("a\tb\n") == "a\tb\n");
    CHECK(printable("\033[31mred\r\b\x7f") == "\\x1b[31mred\\x0d\\x08\\x7f");
    CHECK(printable(std::string_view("\0", 1)) == "\\x00");
    const std::string_view letters = "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x9a\x80 \xc2\xa0 \xed\x9f\xbf \xf4\x8f\xbf\xbf";
    CHECK(printable(letters) == letters);
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");           // a control character beyond ASCII
    CHECK(printable("\xe4\xf6") == "\\xe4\\xf6");           // Latin-1
    CHECK(printable("\xe2\x82") == "\\xe2\\x82");           // cut off
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // longer than necessary
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
    CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(printable(printable("\xff\033")) == printable("\xff\033"));
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

TEST_CASE("text is cut between characters, and one line stays one") {
    CHECK(muster::printable_line("a\nb\tc\x1b") == "a\\x0ab\\x09c\\x1b");
    CHECK(muster::is_printable("a\nb"));
    CHECK_FALSE(muster::is_printable_line("a\nb"));
    CHECK(muster::is_printable(" ~"));
    for (const char* control : {"\xc2\x9b", "\x7f", "\x1f"}) CHECK_FALSE(muster::is_printable(control));
    CHECK(muster::front_of("a\xe2\x82\xac", 3) == "a");
    CHECK(muster::front_of("a\xe2\x82\xac", 4) == "a\xe2\x82\xac");
    CHECK(muster::back_of("\xe2\x82\xac"
                          "b",
                          3) == "b");
}

namespace {
enum class Sparse : std::uint8_t { first = 0, timed_out = 3, far = 200 };
struct Outer {
    enum class Inner { one, two };
};
}  // namespace

TEST_CASE("the name of an enumerator is its own word, and another value has none") {
    CHECK(enumerator_name(Sparse::first) == "first");
    CHECK(enumerator_name(Sparse::timed_out) == "timed_out");
    CHECK(enumerator_name(Outer::Inner::two) == "two");
    CHECK(enumerator_name(static_cast<Sparse>(1)) == "unknown");
    CHECK(enumerator_name(Sparse::far, "none") == "none");
    static_assert(enumerator_name(Outer::Inner::one) == "one");
}
