#include "rendezvous/rounds/ledgers/yielding_jobs.h"

namespace muster::rendezvous {

void YieldingJobs::rank(const std::string& job, JobHold hold) {
    const auto found = places_.find(job);
    if (found != places_.end()) {
        if (found->second.first == hold) return;
        order_.erase({found->second, job});
        places_.erase(found);
    }
    if (hold == JobHold::firm) return;
    const Place place{hold, ++last_};
    places_.emplace(job, place);
    order_.emplace(place, job);
}

const std::string* YieldingJobs::first() const {
    return order_.empty() ? nullptr : &order_.begin()->second;
}

}  // namespace muster::rendezvous
