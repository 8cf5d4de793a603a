#include "rendezvous/events/files/said_event.h"

#include "rendezvous/base/log_listener.h"

namespace muster {

void say(const Event& event) {
    switch (event.place) {
        case EventPlace::log_and_stream: return log_event(LogLevel::info, event.text);
        case EventPlace::warning_and_stream: return log_event(LogLevel::warning, event.text);
        case EventPlace::notice_and_stream: return print_event(cat("muster: ", event.text));
        case EventPlace::stream_only: return log_event(LogLevel::debug, event.text);
    }
}

}  // namespace muster
