#include "rendezvous/net/peer_log.h"

#include <utility>

#include "rendezvous/base/log_listener.h"

namespace muster::rendezvous {

void PeerLog::warn(std::string_view line, Instant now) {
    if (told_at_ && now - *told_at_ < 1min) {
        ++untold_count_;
        return log_event(LogLevel::warning, line);
    }
    told_at_ = now;
    const auto others = std::exchange(untold_count_, 0);
    log(LogLevel::warning, line,
        others == 0 ? std::string()
                    : cat(" (lines like this since the last event that are in the log alone: ", others, ")"));
}

}  // namespace muster::rendezvous
