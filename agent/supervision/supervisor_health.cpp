// The site's own checks of this node, and what a sick node does. It joins all the same, and says what was found: the
// daemon parks it, unless too many nodes report the same. It is checked again at intervals, and joins once more when
// that changes.
#include <utility>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/rank_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

void Supervisor::on(const HealthChecked& event, Instant now) {
    using Health = HealthChecked::Health;
    using SickNode = SupervisorConfig::SickNode;
    if (check_ != Check::running) return;  // the answer to an earlier question
    check_ = Check::done;
    const bool is_sick = event.health == Health::sick;
    if (is_sick && config_.sick_node == SickNode::leaves) return end(Drained{event.why});
    if (event.health == Health::unknown) {
        // That heals nobody.
        if (!unhealthy_.empty()) check_again_at_ = now + config_.health_interval;
        return tell(cat("the health check gave no answer, so this node ",
                        unhealthy_.empty() ? "joins" : "is still taken for sick", ": ", event.why));
    }
    const auto before = std::exchange(unhealthy_, is_sick ? event.why : std::string());
    // Without an interval there is no other check: the finding stays.
    const bool is_checked_again = config_.health_interval > Duration{};
    check_again_at_ = is_sick && is_checked_again ? now + config_.health_interval : no_deadline;
    // A temperature or a time in the text is no other finding.
    if (without_numbers(unhealthy_) == without_numbers(before)) return;
    const bool parks = is_sick && config_.sick_node == SickNode::parks;
    if (is_sick && !parks)
        tell(cat(unhealthy_, "; this node joins, because it hosts the rendezvous of the others"));
    else if (is_sick && is_checked_again)
        tell(cat("this node is sick, and takes part in no round until its health check passes: ", unhealthy_,
                 "; next check in ", muster::describe(config_.health_interval)));
    else if (is_sick)
        tell(cat("this node is sick, and takes part in no round: ", unhealthy_));
    else
        tell(cat("the health check of this node passes again: it is ready for a round",
                 event.why.empty() ? "" : "; no answer: ", event.why));
    if (parks) release_kept("this node is sick");
    if (joined_) send_join();
}

void Supervisor::settle_health(Instant now) {
    if (round_ || ending_ || now < check_again_at_) return;
    check_again_at_ = no_deadline;
    check_ = Check::running;
    act(CheckHealth{});
}

/// A round has begun here: an answer that is still to come says nothing about the next join. A node that goes on
/// although it is sick is checked again before that.
void Supervisor::forget_health() {
    check_ = unhealthy_.empty() ? Check::done : Check::due;
    unhealthy_.clear();
    check_again_at_ = no_deadline;
}

}  // namespace muster::agent
