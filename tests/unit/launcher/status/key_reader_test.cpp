#include "launcher/status/key_reader.h"

#include <vector>

#include "tests/support/catch.h"

using namespace muster::launcher;

namespace {

std::vector<Key> all_of(KeyReader& keys) {
    std::vector<Key> all;
    while (const auto key = keys.next()) all.push_back(*key);
    return all;
}

std::vector<Key> typed(std::string_view bytes) {
    KeyReader keys;
    keys.add(bytes);
    return all_of(keys);
}

}  // namespace

TEST_CASE("keys of xterm, of the Linux console and of tmux are the same keys") {
    using enum KeyKind;
    CHECK(typed("q\r\x7F\b") == std::vector<Key>{{.text = "q"}, {enter}, {backspace}, {backspace}});
    CHECK(typed("\033[A\033OA\033[B\033OB") == std::vector<Key>{{up}, {up}, {down}, {down}});
    CHECK(typed("\033[5~\033[6~\x02\x06") == std::vector<Key>{{page_up}, {page_down}, {page_up}, {page_down}});
    CHECK(typed("\033[H\033OH\033[1~\033[7~") == std::vector<Key>{{home}, {home}, {home}, {home}});
    CHECK(typed("\033[F\033[4~\033[8~") == std::vector<Key>{{end}, {end}, {end}});
    CHECK(typed("\x0C") == std::vector<Key>{{redraw}});
    CHECK(typed("\xC3\xBC") == std::vector<Key>{{.text = "\xC3\xBC"}});
}

TEST_CASE("a key whose bytes come one by one is one key, and a lone ESC is Esc after a while") {
    KeyReader keys;
    for (const char* byte : {"\033", "[", "5"}) {
        keys.add(byte);
        CHECK_FALSE(keys.next());
        CHECK(keys.has_beginning());
    }
    keys.add("~");
    CHECK(keys.next() == Key{KeyKind::page_up});
    CHECK_FALSE(keys.has_beginning());
    keys.add("\033");
    CHECK_FALSE(keys.next());
    keys.end_sequence();
    CHECK(keys.next() == Key{KeyKind::escape});
    CHECK(typed("\033q") == std::vector<Key>{{KeyKind::escape}, {.text = "q"}});
}

TEST_CASE("what is no key is none, and has a limit") {
    CHECK(typed("\033[200~\033[?1;2c\033[3~\x01\xFF\xC0\xAF\xC2\x85").empty());
    CHECK(typed("\033[M\033[1;5Cx") == std::vector<Key>{{.text = "x"}});
    KeyReader keys;
    for (int i = 0; i < 100; ++i) keys.add(std::string(100, 'j'));
    CHECK(all_of(keys).size() == 1024);
    keys.add("\033[12");
    CHECK_FALSE(keys.next());
    keys.end_sequence();
    CHECK_FALSE(keys.next());
    CHECK_FALSE(keys.has_beginning());
}
