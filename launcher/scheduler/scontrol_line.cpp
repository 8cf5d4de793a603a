#include "launcher/scheduler/scontrol_line.h"

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

std::string_view scontrol_field(std::string_view lines, std::string_view name) {
    for (const auto word : split(lines.substr(0, lines.find('\n')), ' '))
        if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) return word.substr(name.size() + 1);
    return {};
}

}  // namespace muster::launcher
