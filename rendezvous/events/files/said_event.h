// An event's sentence in the log, or on the console.
#pragma once

#include "rendezvous/events/event.h"

namespace muster {

/// Where the event's place wants it, and so that no second event is made of it (log_listener.h).
void say(const Event& event);

}  // namespace muster
