// The status as lines for people: what is wrong first. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/status_facts.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

enum class LineStyle { plain, heading, good, attention };

struct StatusLine {
    std::string text;
    LineStyle style = LineStyle::plain;
    friend bool operator==(const StatusLine&, const StatusLine&) = default;
};

struct StatusSize {
    std::size_t columns = 80;
    std::size_t rows = 0;  ///< 0: as many as there are.
};

/// All jobs as a table; with `job`, or where there is one job, that job with its nodes, those in trouble first. What
/// does not fit is cut, and a line has the number of the rest.
std::vector<StatusLine> status_lines(const StatusFacts& facts, std::string_view job, StatusSize size);

/// The first line of a screen whose daemon does not answer: since when, and why.
StatusLine no_answer_line(std::string_view endpoint, Duration since, std::string_view why, StatusSize size);

/// "no job 'x'; jobs: a, b".
std::string unknown_job(const StatusFacts& facts, std::string_view job);

/// The columns that a terminal needs for valid UTF-8.
std::size_t columns_of(std::string_view text);
/// The front of `text` that fits, with "..." where something is cut.
std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace muster::launcher
