// Lines of several hosts in the order of one clock, the viewer's. Pure.
//
// Each host stamps its lines with its own clock. What a host's clock shows more than ours is known from the answer to
// the viewer's question, up to half of the time that this took; the lines' times are put right by it. A line goes out
// when every host has said that it has nothing older, or when it has waited for `patience` since those that have not
// were heard of something newer: a host that is slow delays the others no longer, and a viewer that is slow takes no
// host for it. What then comes from that host may be older than what was shown; it is marked as late. A host whose
// clock is set back while it is read says nothing newer, and one that comes forward slower than time passes is not
// waited for without limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "agent/output/log_reader.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

class LogOrder {
  public:
    using NodeId = std::size_t;
    struct Line {
        NodeId node = 0;
        std::size_t file = 0;
        agent::LogLine line;   ///< With the time of our clock.
        bool is_late = false;  ///< A later one is out already.
    };

    explicit LogOrder(Duration patience) : patience_(patience) {}

    /// Its clock is not known yet.
    NodeId add_node();
    /// The number of a node that has ended is another one's. False while lines of it wait here.
    bool begin_again(NodeId node);
    /// Until then all lines wait for nodes whose clock is not known. Nothing waits for one that is added later.
    void wait_for_clocks(Instant until) { clocks_until_ = until; }
    /// What its clock shows more than ours. Later lines and limits are put right by it.
    void set_clock(NodeId node, std::int64_t ahead_ns);
    /// By the node's clock, in the order in which it sends them.
    void add(NodeId node, std::size_t file, agent::LogLine line, Instant now);
    /// By the node's clock: nothing older comes from it.
    void reached(NodeId node, std::int64_t time_ns, Instant now);
    /// Nothing more comes from it. Its lines are still given out.
    void end(NodeId node);

    /// The next line that may be shown.
    std::optional<Line> next(Instant now);
    /// When next() has another one, if nothing else happens; no_deadline if none waits.
    [[nodiscard]] Instant due() const {
        return heads_.empty() ? no_deadline : may_show_at(nodes_[heads_.begin()->second]);
    }
    /// By our clock: nothing older is still to be shown, as far as the nodes have said.
    [[nodiscard]] std::int64_t complete_ns() const;
    /// How many bytes of memory the lines of a node take here, roughly.
    [[nodiscard]] std::size_t waiting_bytes(NodeId node) const { return nodes_[node].bytes; }

  private:
    static constexpr auto before_all = std::numeric_limits<std::int64_t>::min();
    struct Waiting {
        std::size_t file;
        agent::LogLine line;
        Instant since;
    };
    struct Node {
        std::int64_t ahead_ns = 0;
        std::int64_t reached_ns = before_all;  ///< By our clock.
        std::int64_t newest_ns = before_all;   ///< Of its lines, by our clock.
        Instant heard{};                       ///< Of something newer, or its last line was shown.
        bool is_live = false;                  ///< What there was before it was asked has come.
        bool is_known = false;
        bool has_ended = false;
        std::deque<Waiting> lines;
        std::size_t bytes = 0;
    };
    using Entry = std::pair<std::int64_t, NodeId>;

    /// Around each change of a node, because the sets are in order of what changes.
    void leave(NodeId id);
    void enter(NodeId id);
    /// When the first line of `first` may be shown, if nothing else happens.
    [[nodiscard]] Instant may_show_at(const Node& first) const;

    const Duration patience_;
    std::vector<Node> nodes_;
    std::set<Entry> heads_;   ///< Nodes that have lines, by the time of the first.
    std::set<Entry> silent_;  ///< Others that may have more, by how far they have come.
    Instant clocks_until_{};
    std::size_t unknown_ = 0;  ///< Nodes without a clock that may have lines.
    std::int64_t shown_ns_ = before_all;
};

}  // namespace muster::launcher
