// Builds the mesh: one loop that calls the higher ranks and accepts the lower ranks' calls at the same time. A higher
// rank's control connection finds the address that leads there, and the other connections use it.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
#include "worker_runtime/tcp/mesh/tcp_mesh.h"
#include "worker_runtime/tcp/mesh/tcp_search.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

class MeshBuilder {
  public:
    /// `mesh` has the cards of all ranks. `listeners` are where this rank's card says.
    MeshBuilder(const GroupTerms& terms, TcpMesh mesh, std::vector<FileDescriptor> listeners);

    Result<TcpMesh> build(const MeetingWait& wait);

  private:
    /// A connection from somebody who has not said who he is.
    struct Guest {
        FileDescriptor socket;
        TcpHelloBytes hello{};
        std::size_t hello_size = 0;
    };

    Result<void> expect_connections();
    Result<void> begin_tries(Instant now);
    Result<void> wait_and_serve(Instant deadline);
    void serve_calls(const pollfd*& next, Instant now);
    void serve_searches(const pollfd*& next, Instant now);
    Result<void> serve_probes(const pollfd*& next, Instant now);
    bool serve(Guest& guest);
    bool refuse(const Guest& guest);
    Result<void> admit(const FileDescriptor& listener);
    void follow(const TcpCall& found);
    [[nodiscard]] TcpHello hello_to(int rank, TcpPurpose purpose) const;
    [[nodiscard]] TcpPair pair(int caller, int called) const;
    TcpStream* place_of(const TcpHello& hello, std::uint32_t other);
    void settle(TcpStream& place, TcpStream connection, TcpPurpose purpose);

    [[nodiscard]] const TcpCard& card(int rank) const { return mesh_.peers[static_cast<std::size_t>(rank)].card; }
    [[nodiscard]] Error give_up(Error error) const;
    void tell(const Error& error) const;
    [[nodiscard]] Error with_others_gone(Error error) const;
    [[nodiscard]] bool has_gone(int rank) const;
    [[nodiscard]] bool is_whole(int rank) const;
    [[nodiscard]] std::vector<SocketAddress> addresses_of(int rank) const;
    [[nodiscard]] std::string who(int rank) const { return describe_rank(rank, card(rank)); }
    [[nodiscard]] std::string absentees() const;

    const GroupTerms& terms_;
    TcpMesh mesh_;
    std::vector<FileDescriptor> listeners_;
    int missing_ = 0;
    std::vector<TcpSearch> searches_;  ///< Searches for the higher ranks.
    std::vector<TcpCall> calls_;       ///< Calls to the found ranks.
    std::vector<TcpProbe> probes_;     ///< Probes of the lower ranks, indexed by rank.
    std::vector<Guest> guests_;
    bool told_of_strangers_ = false;
};

}  // namespace muster::runtime
