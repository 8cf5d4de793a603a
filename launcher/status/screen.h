// A terminal's screen as cells, and the bytes that turn one screen into the next: only cells that changed. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/status_text.h"

namespace muster::launcher {

/// One column of one row. The right half of a wide character is an empty cell.
struct Cell {
    std::string glyph = " ";
    LineStyle style = LineStyle::plain;
    friend bool operator==(const Cell&, const Cell&) = default;
};

class Screen {
  public:
    /// Without any cell: what a terminal shows is unknown.
    Screen() = default;
    explicit Screen(StatusSize size);

    [[nodiscard]] StatusSize size() const { return size_; }
    [[nodiscard]] const Cell& at(std::size_t row, std::size_t column) const {
        return cells_[row * size_.columns + column];
    }
    /// Writes valid UTF-8 without control characters from `column` on. What lies outside of the screen is cut.
    void put(std::size_t row, std::size_t column, std::string_view text, LineStyle style = LineStyle::plain);
    /// Gives all cells of a row the style.
    void mark(std::size_t row, LineStyle style);
    /// The row without blanks at its end.
    [[nodiscard]] std::string text(std::size_t row) const;

  private:
    StatusSize size_{0, 0};
    std::vector<Cell> cells_;
};

/// Empty if nothing changed. Screens of different sizes: the terminal is cleared first.
std::string screen_update(const Screen& before, const Screen& after, bool colored);

}  // namespace muster::launcher
