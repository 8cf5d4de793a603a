// Lines of many workers as text for a person: folded, or each with its rank and time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/output/line_fold.h"
#include "agent/output/log_reader.h"

namespace muster::launcher {

class LogShow {
  public:
    enum class Form { folded, lines, lines_with_times };
    /// Of a line that comes after later ones were shown.
    enum class Order { kept, late };
    using FileId = std::uint64_t;
    using Sink = std::function<bool(std::string_view lines)>;

    explicit LogShow(Form form) : form_(form) {}

    /// A line of that file, one of `rank_count` ranks in all as far as known. A late line is marked with "~", and its
    /// rank does not count as one of those that printed the same.
    void add(FileId file, const agent::LogLine& line, std::size_t rank_count, Order order = Order::kept);
    /// What time alone decides of a fold.
    void show_due(std::int64_t now_ns);
    /// Shows all that is held back to be folded.
    void finish() { fold_.show_all(Instant{}); }
    /// Gives the text since the last call, whole lines. False: the sink takes no more.
    bool give(const Sink& sink) {
        const auto text = std::exchange(text_, {}) + fold_.take();
        return text.empty() || sink(text);
    }
    [[nodiscard]] std::size_t size() const { return text_.size() + fold_.size(); }  ///< Of that text.

  private:
    struct Folded {
        agent::LineFold::SourceId id = 0;
        std::shared_ptr<const agent::LogOwner> owner;
    };
    void fold(FileId file, const agent::LogLine& line, std::size_t rank_count);

    const Form form_;
    std::map<FileId, Folded> folded_;
    agent::LineFold fold_{agent::LineFold::Limits{.ranks = "ranks"}};
    std::string text_;
};

}  // namespace muster::launcher
