// Builds the mesh: one loop that calls the higher partners and accepts the lower partners' calls at the same time. The
// first connection with a higher rank finds the address that leads there, and the other connections use it.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
#include "worker_runtime/tcp/mesh/tcp_door.h"
#include "worker_runtime/tcp/mesh/tcp_mesh.h"
#include "worker_runtime/tcp/mesh/tcp_search.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// Which connections with a rank are made.
struct TcpNeed {
    bool control = true;
    bool transfers = true;
    bool lanes = true;

    [[nodiscard]] int count(int stripes) const {
        return (control ? 1 : 0) + (transfers ? 2 : 0) + (lanes ? lane_count * stripes : 0);
    }
};

class MeshBuilder final : private TcpHost {
  public:
    /// `mesh` has the cards of this rank and of its partners, and gets `need` of each partner. Lower ranks call at its
    /// door, which is where this rank's card says; without one, there are no lower partners.
    MeshBuilder(const GroupTerms& terms, TcpMesh mesh, TcpNeed need);
    /// For one more rank, a higher one: connections for messages, and with `control` for news too. `mesh` has both
    /// cards.
    static std::unique_ptr<MeshBuilder> late(const GroupTerms& terms, const TcpMesh& mesh, int rank, bool control);

    /// An error names this rank, and those that did not connect.
    Result<void> build(const MeetingWait& wait);
    /// Why this rank gives up, to all with which it has a control connection.
    void tell(const Error& error) const;
    /// What was built, also where that failed; the caller may take it away.
    [[nodiscard]] TcpMesh& mesh() { return mesh_; }

  private:
    Result<void> connect_all(const MeetingWait& wait);
    Result<void> expect_connections();
    Result<void> begin_tries(Instant now);
    Result<void> wait_and_serve(Instant deadline);
    void serve_calls(const pollfd*& next, Instant now);
    void serve_searches(const pollfd*& next, Instant now);
    Result<void> serve_probes(const pollfd*& next, Instant now);
    [[nodiscard]] std::vector<TcpHello> hellos_to(int rank) const;
    [[nodiscard]] TcpPair pair_with(int called) const { return pair_of(terms_, card(terms_.rank), card(called)); }
    TcpStream* place_with(int other, const TcpHello& hello);
    [[nodiscard]] const TcpCard& card(int rank) const override { return mesh_.card(rank); }
    TcpWelcome welcome(const TcpHello& hello) override;
    void settle(TcpStream& place, TcpStream connection, const TcpHello& hello) override;

    [[nodiscard]] Error give_up(Error error) const;
    [[nodiscard]] std::optional<Error> told_by_others() const;
    [[nodiscard]] bool is_sparse_start() const;
    [[nodiscard]] std::string reason_key() const;
    [[nodiscard]] Error with_others_gone(Error error) const;
    [[nodiscard]] bool has_gone(int rank) const;
    [[nodiscard]] bool is_whole(int rank) const { return missing_from_[static_cast<std::size_t>(rank)] == 0; }
    [[nodiscard]] std::vector<SocketAddress> addresses_of(int rank) const;
    [[nodiscard]] std::string who(int rank) const { return describe_rank(rank, card(rank)); }
    [[nodiscard]] std::string absentees() const;

    const GroupTerms& terms_;
    TcpMesh mesh_;
    const TcpNeed need_;
    int missing_ = 0;
    std::vector<int> missing_from_;    ///< Connections, indexed by rank.
    std::vector<TcpSearch> searches_;  ///< Searches for the higher ranks.
    std::vector<TcpCall> calls_;       ///< Calls to the found ranks.
    std::map<int, TcpProbe> probes_;   ///< Probes of the lower ranks.
};

}  // namespace muster::runtime
