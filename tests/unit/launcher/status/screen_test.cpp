#include "launcher/status/screen.h"

#include <random>

#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr StatusSize small{8, 3};

Screen shown(const std::vector<StatusLine>& lines) {
    Screen screen(small);
    for (std::size_t row = 0; row < lines.size(); ++row) screen.put(row, 0, lines[row].text, lines[row].style);
    return screen;
}

/// What a terminal shows after `update`: it knows the cursor, erasing, and styles.
struct Shown {
    explicit Shown(StatusSize of) : size(of), cells(of.rows, std::vector<Cell>(of.columns)) {}

    void obey(std::string_view text, char command) {
        if (command == 'J') *this = Shown(size);
        if (command == 'm')
            style = text.empty()  ? LineStyle::plain
                    : text == "1" ? LineStyle::heading
                    : text == "7" ? LineStyle::selected
                                  : LineStyle::attention;
        if (command == 'H') {
            const auto parts = split(text, ';');
            REQUIRE((parts.size() == 2 && parse_number(parts[0], row) && parse_number(parts[1], column)));
            --row;
            --column;
        }
        if (command == 'K')
            for (auto at = column; at < size.columns; ++at) cells[row][at] = {};
    }
    void draw(std::string_view update) {
        while (!update.empty()) {
            if (update.front() == '\033') {
                const auto end = update.find_first_of("HKJmhl");
                REQUIRE(end != std::string_view::npos);
                if (update[2] != '?') obey(update.substr(2, end - 2), update[end]);
                update.remove_prefix(end + 1);
                continue;
            }
            const auto next = character_at(update);
            REQUIRE((row < size.rows && column + next.columns <= size.columns));
            if (next.columns == 0) {
                auto& before = cells[row][column - 1];
                (before.glyph.empty() ? cells[row][column - 2] : before).glyph += update.substr(0, next.bytes);
            } else {
                cells[row][column] = {std::string(update.substr(0, next.bytes)), style};
                if (next.columns == 2) cells[row][column + 1] = {{}, style};
                column += next.columns;
            }
            update.remove_prefix(next.bytes);
        }
    }

    StatusSize size;
    std::vector<std::vector<Cell>> cells;
    std::size_t row = 0;
    std::size_t column = 0;
    LineStyle style = LineStyle::plain;
};

}  // namespace

TEST_CASE("only changed cells are written, in one synchronized update") {
    const auto before = shown({{"a 10 s"}, {"b"}, {"c"}});
    CHECK(screen_update(before, before, true).empty());
    CHECK(screen_update(before, shown({{"a 11 s"}, {"x", LineStyle::attention}}), true) ==
          "\033[?2026h\033[1;4H1\033[2;1H\033[31mx\033[m\033[3;1H\033[K\033[?2026l");
    CHECK(screen_update(before, shown({{"a 10 s"}, {"x", LineStyle::attention}, {"c"}}), false) ==
          "\033[?2026h\033[2;1Hx\033[?2026l");
    CHECK(screen_update({}, shown({{"a"}}), false) == "\033[?2026h\033[2J\033[1;1Ha\033[?2026l");
}

TEST_CASE("text is cut at the border, and no half of a wide character stays") {
    Screen screen(small);
    screen.put(0, 6, "abcdef");
    screen.put(9, 0, "below");
    CHECK(screen.text(0) == "      ab");
    screen.put(1, 0, "1234567\xE6\xBC\xA2");
    CHECK(screen.text(1) == "1234567");
    screen.put(2, 0, "\xE6\xBC\xA2\xE5\xAD\x97");
    screen.put(2, 1, "x");
    CHECK(screen.text(2) == " x\xE5\xAD\x97");
    screen.put(2, 2, "y");
    CHECK(screen.text(2) == " xy");
    screen.put(2, 3, "\xCC\x81");
    CHECK(screen.text(2) == " xy\xCC\x81");
}

TEST_CASE("whatever two screens hold, the update turns one into the other") {
    std::mt19937 random(20);
    const std::vector<std::string> pieces{"a", "b", " ", "  ", "\xE6\xBC\xA2", "e\xCC\x81", "12345", "        "};
    const std::vector<LineStyle> styles{LineStyle::plain, LineStyle::plain, LineStyle::attention, LineStyle::selected};
    const StatusSize size{24, 4};
    const auto made = [&] {
        Screen screen(size);
        for (std::size_t row = 0; row < size.rows; ++row)
            for (std::size_t column = 0; column < size.columns; column += 1 + random() % 5)
                screen.put(row, column, pieces[random() % pieces.size()], styles[random() % styles.size()]);
        return screen;
    };
    Shown terminal(size);
    Screen before;
    for (int i = 0; i < 200; ++i) {
        auto after = made();
        if (i % 3 == 2) {  // Like the last one, but for a few cells.
            after = before;
            after.put(random() % size.rows, random() % size.columns, pieces[random() % pieces.size()]);
        }
        terminal.draw(screen_update(before, after, true));
        CHECK(terminal.style == LineStyle::plain);
        for (std::size_t row = 0; row < size.rows; ++row)
            for (std::size_t column = 0; column < size.columns; ++column)
                REQUIRE(terminal.cells[row][column] == after.at(row, column));
        before = after;
    }
}
