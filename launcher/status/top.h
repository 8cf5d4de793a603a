// The state of `muster top`: what is shown, and what a key does. Pure: answers and keys change the state, and the state
// becomes a screen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/status/key_reader.h"
#include "launcher/status/screen.h"
#include "launcher/status/status_reader.h"
#include "launcher/status/step_rate.h"

namespace muster::launcher {

class Top {
  public:
    /// `daemon` is its name for people. `job` is shown; empty: the only job, or the list of jobs.
    Top(std::string daemon, std::string job, Instant now);

    void take(Result<std::string> answer, Instant now);
    /// False: the person leaves.
    bool press(const Key& key, StatusSize size, Instant now);
    [[nodiscard]] Screen screen(StatusSize size, Instant now) const;
    [[nodiscard]] const LatestStatus& status() const { return status_; }
    /// The command of muster that the last key asks for, and its arguments. Empty: none.
    [[nodiscard]] std::vector<std::string> take_command() { return std::exchange(command_, {}); }

  private:
    enum class Order { trouble, rank, host, heard };
    /// A job's id, or a node's host and pid.
    struct Name {
        std::string text;
        std::int64_t pid = 0;
    };
    /// Rows of the table that is shown: either jobs or nodes.
    struct Rows {
        std::vector<const StatusJob*> jobs;
        std::vector<const StatusNode*> nodes;
        std::size_t all_count = 0;  ///< Also those that the filter hides.
        [[nodiscard]] std::size_t size() const { return jobs.size() + nodes.size(); }
        [[nodiscard]] bool is(std::size_t row, const Name& name) const;
        [[nodiscard]] Name name(std::size_t row) const;
        [[nodiscard]] StatusLine line(std::size_t row, std::size_t columns) const;
    };
    /// Which rows of the screen show what.
    struct Layout {
        std::vector<StatusLine> head;
        std::size_t heading_rows = 0;
        std::size_t table_rows = 0;
        std::size_t foot_rows = 0;
    };

    [[nodiscard]] const StatusJob* shown_job() const;
    [[nodiscard]] const StatusNode* shown_node(const StatusJob& job) const;
    [[nodiscard]] Rows rows() const;
    [[nodiscard]] std::size_t selected(const Rows& rows) const;
    void select(const Rows& rows, std::size_t row);
    bool press_in_filter(const Key& key);
    bool press_character(const std::string& text);
    void open();
    void back();
    void ask_for(std::vector<std::string> command);

    [[nodiscard]] std::vector<StatusLine> head(Instant now) const;
    [[nodiscard]] std::vector<StatusLine> speed_lines(const StatusJob& job, Instant now) const;
    [[nodiscard]] Layout layout(StatusSize size, const Rows& rows, Instant now) const;
    void draw_table(Screen& screen, const Layout& layout, const Rows& rows) const;
    [[nodiscard]] std::string foot(const Rows& rows, const Layout& layout) const;

    std::string daemon_;
    LatestStatus status_;
    std::map<std::string, StepRate> rates_;  ///< By job.
    std::string job_;                        ///< Empty: none is chosen.
    bool shows_list_ = false;                ///< The person went back to the list, although there is one job.
    std::optional<Name> node_;               ///< The node that is shown alone.
    bool shows_help_ = false;
    Order order_ = Order::trouble;
    bool is_reversed_ = false;
    std::string filter_;
    bool types_filter_ = false;
    std::vector<std::string> command_;
    std::optional<Name> selection_;  ///< It stays on its job or node, whatever the order.
    std::size_t selected_row_ = 0;   ///< Of the selection, or where it was. Without one, the first row.
};

}  // namespace muster::launcher
