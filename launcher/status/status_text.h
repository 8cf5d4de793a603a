// The status as lines for people: what is wrong first. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/status_facts.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

enum class LineStyle { plain, heading, good, attention, selected };

struct StatusLine {
    std::string text;
    LineStyle style = LineStyle::plain;
    friend bool operator==(const StatusLine&, const StatusLine&) = default;
};

struct StatusSize {
    std::size_t columns = 80;
    std::size_t rows = 0;
    friend bool operator==(const StatusSize&, const StatusSize&) = default;
};

// ---- Parts, for other views ----

void append(std::vector<StatusLine>& lines, std::vector<StatusLine> more);
/// What concerns the daemon itself: it stands by, or cannot write its state.
std::vector<StatusLine> daemon_lines(const StatusFacts& facts);
/// A job without its nodes: its state, what it waits for, and who waits for whom.
std::vector<StatusLine> job_lines(const StatusJob& job);
/// Who waits for whom: a line for each missing rank, and one for each operation in which others wait.
std::vector<StatusLine> waiting_lines(const std::vector<const StatusNode*>& nodes);
/// Rows of tables, and their headings. They fill `columns`.
StatusLine job_heading(std::size_t columns);
StatusLine job_row(const StatusJob& job, std::size_t columns);
StatusLine node_heading(std::size_t columns);
StatusLine node_row(const StatusNode& node, std::size_t columns);
/// "8-15"; "-" if it has none.
std::string ranks_of(const StatusNode& node);
/// "0 s ago", or "no link".
std::string heard_of(const StatusNode& node);
/// The node is lost, has no connection, has a missing rank, or has to leave.
[[nodiscard]] bool is_in_trouble(const StatusNode& node);
/// One of its nodes is.
[[nodiscard]] bool has_trouble(const StatusJob& job);
/// Those in trouble first, the others by group rank.
std::vector<const StatusNode*> worst_first(const std::vector<StatusNode>& nodes);

// ---- Whole texts ----

/// All jobs as a table; with `job`, or where there is one job, that job with its nodes, those in trouble first.
/// Lines are cut at `columns`, and tables are as wide as their longest name needs.
std::vector<StatusLine> status_lines(const StatusFacts& facts, std::string_view job, std::size_t columns);

/// The first line of a screen whose daemon does not answer: since when, and why.
StatusLine no_answer_line(std::string_view endpoint, Duration since, std::string_view why);

[[nodiscard]] const StatusJob* find_job(const StatusFacts& facts, std::string_view job);
/// "no job 'x'; jobs: a, b".
std::string unknown_job(const StatusFacts& facts, std::string_view job);

}  // namespace muster::launcher
