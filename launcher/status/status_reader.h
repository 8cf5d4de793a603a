// Reads the daemon's GET /status, again and again. Pure.
//
// Almost all of a large page are its nodes, and between two pages of a healthy job they differ only in the time since a
// node was heard. So a node whose other bytes are those of the last page is not parsed again: a page of 10,000 nodes
// costs 3 ms instead of 27 ms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/status_facts.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

class StatusReader {
  public:
    /// bad_frame: the text is not a status page; facts() are then those of the page before.
    Result<void> read(std::string page);
    [[nodiscard]] const StatusFacts& facts() const { return facts_; }

    /// One node in the text of a page.
    struct NodeText {
        std::size_t begin = 0;
        std::size_t end = 0;
        std::size_t silent = 0;  ///< Of the digits of silent_ms. `end`: there are none.
        std::size_t silent_end = 0;
        bool is_same = false;  ///< Its other bytes are those of this node on the page before.
    };

  private:
    std::string page_;
    std::vector<std::vector<NodeText>> lists_;  ///< Of the nodes of each job. Empty: the page has another layout.
    StatusFacts facts_;
};

/// What was last heard of a daemon that is asked again and again.
struct LatestStatus {
    explicit LatestStatus(Instant now) : answered_at(now) {}
    /// Of the daemon: a page, or why there is none.
    void take(Result<std::string> answer, Instant now);

    StatusReader reader;
    bool has_facts = false;
    Instant answered_at;  ///< When it was first asked, until it answers.
    std::string trouble;  ///< Why the last question has no answer. Empty: it has one.
};

/// One page alone.
Result<StatusFacts> read_status_facts(std::string_view page);

}  // namespace muster::launcher
