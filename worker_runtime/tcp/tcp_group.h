// The ranks of a group over TCP, and its failures.
//
// The first rank that detects a failure sends it to all others over the control connections; each of them ends with the
// same text. In a large group it sends it to its partners, which pass it on to theirs. A rank that leaves in order
// announces it; a rank whose connections end without that has died.
//
// A rank that has waited until its deadline asks the awaited ranks which ranks they wait for, and these in turn, until
// it finds ranks that do not answer or wait for none: the failure names these (trace()). Every waiting rank therefore
// records whom it waits for, and listens. A communicator that was split off asks in the root communicator, whose ranks
// always listen and know the waits in all of them (wait_board.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/fork_guard.h"
#include "worker_runtime/tcp/mesh/tcp_control.h"
#include "worker_runtime/tcp/mesh/tcp_mesh.h"
#include "worker_runtime/tcp/tcp_late_links.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"
#include "worker_runtime/transport/wait_board.h"

namespace muster::runtime {

class TcpGroup {
  public:
    static Result<std::unique_ptr<TcpGroup>> over(const GroupTerms& terms, TcpMesh mesh);
    /// Tells the others that this rank has left, unless the group has failed.
    ~TcpGroup();
    TcpGroup& operator=(TcpGroup&&) = delete;

    [[nodiscard]] int rank() const { return terms_.rank; }
    [[nodiscard]] int size() const { return static_cast<int>(mesh_.peers.size()); }
    [[nodiscard]] int stripes() const { return mesh_.stripes; }
    [[nodiscard]] const std::string& id() const { return terms_.id; }
    /// Connected with all ranks, or else with partners (mesh/tcp_partners.h), and with others at first use.
    [[nodiscard]] bool is_whole() const { return late_ == nullptr; }
    /// Ascending.
    [[nodiscard]] const std::vector<int>& partners() const { return mesh_.partners; }
    /// What there is since the start.
    [[nodiscard]] const TcpPeer& peer(int rank) const { return mesh_.peers[static_cast<std::size_t>(rank)]; }
    /// With those of linked(); else invalid.
    [[nodiscard]] const TcpStream& control(int rank) const;
    /// The ranks with a control connection: partners first.
    [[nodiscard]] std::vector<int> linked() const;
    /// Ranks on this host, this one included.
    [[nodiscard]] int ranks_here() const { return ranks_here_; }
    /// How long a waiting thread may look for news itself before it sleeps; nothing where ranks outnumber cores.
    [[nodiscard]] Duration spin(WaitMode patience) const;
    /// Readable once the group has failed.
    [[nodiscard]] const FileDescriptor& wake() const { return wake_; }

    // All from any thread.

    /// The connections for messages with `rank`, which are made now if need be. timed_out: not until the deadline.
    /// Other errors are the group's end.
    Result<const TcpPeer*> link(int rank, const RunTerms& terms);
    /// Of a group that is not whole: readable when serve_late() has something to do, in one thread at all times. False
    /// when it is not called again.
    [[nodiscard]] const FileDescriptor& late_bell() const { return late_->bell(); }
    bool serve_late();

    /// Ends the group with this failure, unless it has one already; the first one is returned. `unfinished` is the
    /// collective's number that this rank has given up; 0: none.
    Error fail(Errc code, const std::string& text, std::uint64_t unfinished = 0);
    /// The first failure; the group must have one.
    [[nodiscard]] Error failure() const;
    /// Has a rank given up collective `number`? Then the group has failed, or will as soon as the guilty rank is found.
    [[nodiscard]] bool gave_up(std::uint64_t number) const;
    /// The failure that follows after that.
    Error failure_soon();
    /// The control connection with `rank` has become readable. An error is the group's end; a rank that left in order,
    /// or died, is none until somebody needs it. True when nothing more will be heard from it.
    Result<bool> hear(int rank);
    /// The same for who watches a connection while nothing is being carried: a death is a failure too, at once.
    Result<bool> receive_or_lose(int rank);
    /// The same for all, without waiting: an error is the group's failure.
    Result<void> check_alive();
    /// A connection with `rank` has ended (`failure` 0) or failed while `doing`. Looks for the reason, which was sent
    /// before the end.
    Error lost(int rank, int failure, const std::string& doing);
    /// A connection with `rank` has ended: did it close this communicator in order?
    bool has_left(int rank);

    // ---- who is late ----

    /// This rank has waited for these for a while, in one of its `waits`; none: that goes on.
    void waits_for(const void* wait, std::vector<int> ranks);
    /// Where this rank also waits in another way than by waits_for(): asked from any thread.
    void also_waits_for(std::function<std::vector<int>()> ranks);
    /// Whom trace() asks beside `late` and those on the way from there. All, where several may be missing from a
    /// collective and this rank waits for some of them only: each rank that another one waits for is followed, too.
    enum class Witnesses { none, all };
    /// Those of `late`, or of those that they wait for, in whatever communicator, who keep all others waiting: first
    /// those that did not answer, then those that wait for nobody; `late` itself where that leads nowhere. Ranks are
    /// this group's; -1 for one that is not in it. An error: the group has failed meanwhile. Gives up collective
    /// `number` (0: none).
    Result<FailedRanks> trace(const std::vector<int>& late, std::uint64_t number,
                              Witnesses witnesses = Witnesses::none);
    /// From now on this group, a root that hears its connections at all times, also traces for its parts.
    void trace_for_parts();

    /// "rank 3 (pid 4711 on gpu07)", with its number in the root.
    [[nodiscard]] std::string who(int rank) const;
    [[nodiscard]] std::string who(const std::vector<int>& ranks) const;

  private:
    TcpGroup(const GroupTerms& terms, TcpMesh mesh, FileDescriptor wake);
    /// What is wrong with an encrypted connection whose bytes fail authentication.
    [[nodiscard]] std::string changed_bytes(int rank) const;
    /// The last that a control connection will ever say.
    enum class PeerState { nothing, failed, left, silent, ended };
    struct Inbox {
        std::string bytes;
        PeerState told = PeerState::nothing;
        std::string silence;                        ///< Error text of the network.
        std::optional<std::vector<int>> waits_for;  ///< The last answer.
    };
    /// What trace() wants to know of a rank.
    struct Question {
        std::vector<int> route;  ///< From this rank to the one that is asked: each has named the next one.
        Instant asked{};         ///< Time of the first question.
        Instant asked_last{};
        bool answered = false;
        bool witness = false;  ///< No rank is known to wait for it, so it is not the cause.
    };
    [[nodiscard]] Inbox& inbox(int rank) { return inboxes_[static_cast<std::size_t>(rank)]; }
    // With mutex_ held:
    void read(int rank);
    void take(int rank, ControlFrame frame);
    void send(int rank, const ControlFrame& frame) const;
    void send_all(const ControlFrame& frame) const;
    [[nodiscard]] std::vector<int> waited_for() const;
    std::optional<std::vector<int>> pursue(int rank, Question& question, Instant began);
    [[nodiscard]] std::vector<int> route_over(const std::vector<int>& route, int to) const;
    void pass_on(ControlFrame frame);
    Error fail_locked(Errc code, const std::string& text, std::uint64_t unfinished);
    Result<bool> heard(int rank);
    Result<bool> received_or_lost(int rank);

    void await_final_messages(int rank);
    void give_up(std::uint64_t number);
    Result<std::vector<int>> trace_here(const std::vector<int>& late, Witnesses witnesses);
    [[nodiscard]] std::vector<int> numbers_here(const std::vector<int>& root_ranks) const;

    const GroupTerms terms_;
    const TcpMesh mesh_;
    const FileDescriptor wake_;
    int ranks_here_ = 1;
    const ForkGuard fork_guard_;
    std::unique_ptr<TcpLateLinks> late_;  ///< Null in a whole mesh.
    mutable std::mutex mutex_;
    std::optional<Error> failure_;
    std::uint64_t given_up_ = 0;  ///< The last collective that a rank has given up.
    int given_up_by_ = -1;
    std::vector<Inbox> inboxes_;  ///< Indexed by rank.
    std::map<const void*, std::vector<int>> waits_;
    std::function<std::vector<int>()> also_waits_for_;
    std::optional<WaitEntry> entry_;  ///< Entry of a part. Declared last, because it calls this object.
};

}  // namespace muster::runtime
