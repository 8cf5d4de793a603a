// Which job gives way when a daemon serves too many. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace muster::rendezvous {

/// How firmly a job is held.
enum class JobHold {
    unsealed,  ///< No round of it was sealed by this daemon or is kept: anybody can make it up.
    empty,     ///< Its agents are gone; it is remembered for those that come again.
    firm,
};

class YieldingJobs {
  public:
    /// Call it whenever the job may have changed; firm for one that is no more.
    void rank(const std::string& job, JobHold hold);
    /// The one that goes first: the least firm, and of these the one that has been so for longest. Null: all are firm.
    [[nodiscard]] const std::string* first() const;

  private:
    using Place = std::pair<JobHold, std::uint64_t>;
    std::map<std::string, Place> places_;
    std::set<std::pair<Place, std::string>> order_;
    std::uint64_t last_ = 0;
};

}  // namespace muster::rendezvous
