// The story of one job for a picture: a fold over its events (rendezvous/events/EVENTS.md). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

struct Timeline {
    enum class Phase { waiting, starting, stepping, hung, unmeasured, detecting, stopping };
    enum class MarkKind { failure, loss, checkpoint, failed_checkpoint, notice };

    /// The spans follow one another without gaps.
    struct Span {
        Phase phase = Phase::waiting;
        Duration from{};  ///< All times are since 1970.
        Duration to{};
        std::int64_t round = -1;  ///< -1: between rounds.
        std::string text;         ///< What began it.
    };
    struct Mark {
        MarkKind kind = MarkKind::failure;
        Duration at{};
        std::string text;
    };
    /// All ranks had completed `step`.
    struct Progress {
        Duration at{};
        std::int64_t round = -1;
        std::int64_t step = 0;
    };

    Duration from{};
    Duration to{};
    bool is_over = false;
    bool begins_late = false;  ///< Earlier events are no longer kept.
    std::vector<Span> spans;
    std::vector<Mark> marks;
    std::vector<Progress> progress;  ///< By time.
};

/// From the lines of GET /api/v1/jobs/JOB/events, the oldest first. Of a job that was started again under its name, the
/// last run counts. A job that is not over goes on until `now`. Errors: bad_frame, with the number of the line;
/// no_event of them (invalid_argument).
Result<Timeline> read_timeline(std::string_view lines, Duration now_since_1970);

std::string_view name(Timeline::Phase phase);

}  // namespace muster::launcher
