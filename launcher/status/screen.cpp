#include "launcher/status/screen.h"

#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// Combining marks without end may follow a character of a hostile name.
constexpr std::size_t glyph_bytes_max = 16;
/// So many unchanged cells cost less than the command that skips them.
constexpr std::size_t skipped_min = 7;

std::string_view style_code(LineStyle style) {
    constexpr std::string_view codes[] = {"", "\033[1m", "\033[32m", "\033[31m", "\033[7m"};
    return codes[static_cast<std::size_t>(style)];
}

/// Appends the changes of one row.
class RowWriter {
  public:
    RowWriter(std::string& out, std::size_t row, bool colored) : out_(out), row_(row), colored_(colored) {}

    void write(std::size_t column, const Cell& cell) {
        if (!is_placed_ || column_ != column) out_ += cat("\033[", row_ + 1, ';', column + 1, 'H');
        set_style(cell.style);
        out_ += cell.glyph;
        column_ = column + 1;
        // A terminal may take another width for a character that is not ASCII.
        is_placed_ = cell.glyph.size() == 1;
    }
    void erase_from(std::size_t column) {
        set_style(LineStyle::plain);
        if (!is_placed_ || column_ != column) out_ += cat("\033[", row_ + 1, ';', column + 1, 'H');
        out_ += "\033[K";
    }
    void end() { set_style(LineStyle::plain); }
    [[nodiscard]] bool is_near(std::size_t column) const {
        return is_placed_ && column >= column_ && column - column_ < skipped_min;
    }
    [[nodiscard]] std::size_t column() const { return column_; }

  private:
    void set_style(LineStyle style) {
        if (!colored_ || style == style_) return;
        if (style_ != LineStyle::plain) out_ += "\033[m";
        out_ += style_code(style);
        style_ = style;
    }

    std::string& out_;
    std::size_t row_;
    bool colored_;
    bool is_placed_ = false;
    std::size_t column_ = 0;
    LineStyle style_ = LineStyle::plain;
};

/// Behind the last cell that is no blank.
std::size_t end_of_row(const Screen& screen, std::size_t row) {
    static const Cell blank;
    auto end = screen.size().columns;
    while (end > 0 && screen.at(row, end - 1) == blank) --end;
    return end;
}

void update_row(std::string& out, const Screen* before, const Screen& after, std::size_t row, bool colored) {
    RowWriter writer(out, row, colored);
    const auto end = end_of_row(after, row);
    for (std::size_t column = 0; column < end; ++column) {
        const auto& cell = after.at(row, column);
        if (cell.glyph.empty()) continue;  // Its left half is written, or has not changed.
        if (before != nullptr && before->at(row, column) == cell) continue;
        if (writer.is_near(column))
            for (auto gap = writer.column(); gap < column; ++gap) writer.write(gap, after.at(row, gap));
        writer.write(column, cell);
    }
    if (before != nullptr && end_of_row(*before, row) > end) writer.erase_from(end);
    writer.end();
}

}  // namespace

Screen::Screen(StatusSize size) : size_(size), cells_(size.columns * size.rows) {}

void Screen::put(std::size_t row, std::size_t column, std::string_view text, LineStyle style) {
    if (row >= size_.rows || size_.columns == 0) return;
    auto* const cells = &cells_[row * size_.columns];
    while (!text.empty()) {
        const auto next = character_at(text);
        const auto glyph = text.substr(0, next.bytes);
        text.remove_prefix(glyph.size());
        if (next.columns == 0) {
            if (column == 0) continue;
            auto& marked =
                cells[column - 1].glyph.empty() && column > 1 ? cells[column - 2].glyph : cells[column - 1].glyph;
            if (marked.size() + glyph.size() <= glyph_bytes_max) marked += glyph;
            continue;
        }
        if (column + next.columns > size_.columns) return;
        // No half of a wide character stays.
        if (cells[column].glyph.empty() && column > 0) cells[column - 1].glyph = " ";
        const auto behind = column + next.columns;
        if (behind < size_.columns && cells[behind].glyph.empty()) cells[behind].glyph = " ";
        cells[column] = {std::string(glyph), style};
        if (next.columns == 2) cells[column + 1] = {{}, style};
        column += next.columns;
    }
}

void Screen::mark(std::size_t row, LineStyle style) {
    if (row >= size_.rows) return;
    for (std::size_t column = 0; column < size_.columns; ++column) cells_[row * size_.columns + column].style = style;
}

std::string Screen::text(std::size_t row) const {
    std::string text;
    for (std::size_t column = 0; column < size_.columns; ++column) text += at(row, column).glyph;
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
}

std::string screen_update(const Screen& before, const Screen& after, bool colored) {
    const bool is_known = before.size() == after.size();
    std::string out = is_known ? "" : "\033[2J";
    for (std::size_t row = 0; row < after.size().rows; ++row)
        update_row(out, is_known ? &before : nullptr, after, row, colored);
    // A terminal that knows synchronized updates shows all of it at once, and nothing flickers.
    return out.empty() ? out : cat("\033[?2026h", out, "\033[?2026l");
}

}  // namespace muster::launcher
