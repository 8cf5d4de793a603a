// The links between nodes as files: a picture, and lists of hosts. Pure; from the records of the look "nodes".
#pragma once

#include <string>

#include "agent/doctor/look.h"

namespace muster::agent {

/// A square for each tested pair, in rows and columns of nodes: green passed, red failed, with its figures as a
/// tooltip.
std::string links_svg(const Look& nodes);

/// The hosts that passed, or those that did not, one a line.
std::string hosts_of(const Look& nodes, bool passed);

}  // namespace muster::agent
