// Everything that a person is told, for a program: events are made of it (rendezvous/events/EVENTS.md).
#pragma once

#include <functional>
#include <string_view>

#include "rendezvous/base/log.h"

namespace muster {

/// Gets each line of level info and above, also of those that the log's level drops, and each notice. Called from any
/// thread, by one at a time; what it logs itself it does not get. Empty: nobody listens, and no call goes on when this
/// returns.
void set_log_listener(std::function<void(std::string_view text)> listener);

/// Logs what is an event already: the listener does not get it.
void log_event(LogLevel level, std::string_view text);
/// The same for a notice (print_notice).
void print_event(std::string_view text);

}  // namespace muster
