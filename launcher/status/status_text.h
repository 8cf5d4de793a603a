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
    std::size_t rows = 0;  ///< 0: as many as there are.
    friend bool operator==(const StatusSize&, const StatusSize&) = default;
};

/// All jobs as a table; with `job`, or where there is one job, that job with its nodes, those in trouble first. What
/// does not fit is cut, and a line has the number of the rest.
std::vector<StatusLine> status_lines(const StatusFacts& facts, std::string_view job, StatusSize size);

/// The first line of a screen whose daemon does not answer: since when, and why.
StatusLine no_answer_line(std::string_view endpoint, Duration since, std::string_view why, StatusSize size);

[[nodiscard]] bool has_job(const StatusFacts& facts, std::string_view job);
/// "no job 'x'; jobs: a, b".
std::string unknown_job(const StatusFacts& facts, std::string_view job);

}  // namespace muster::launcher
