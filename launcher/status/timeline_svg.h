// A job's timeline as a picture: its rounds, failures, checkpoints and steps a second. Pure.
#pragma once

#include <string>

#include "launcher/status/timeline.h"

namespace muster::launcher {

/// `goodput`: the sentence of the status page.
std::string timeline_svg(const Timeline& timeline, const std::string& job, const std::string& goodput);

}  // namespace muster::launcher
