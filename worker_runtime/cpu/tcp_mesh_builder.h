// How the mesh comes to be: one loop that calls the higher ranks and receives the lower ones' calls, all at once.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/cpu/meeting_place.h"
#include "worker_runtime/cpu/tcp_call.h"
#include "worker_runtime/cpu/tcp_mesh.h"

namespace muster::runtime {

class MeshBuilder {
  public:
    /// `mesh` has the cards of all ranks. `listener` is where this rank's card says.
    MeshBuilder(const GroupTerms& terms, TcpMesh mesh, FileDescriptor listener);

    Result<TcpMesh> build(Instant deadline);

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
    Result<void> serve(TcpCall& call, Instant now);
    bool serve(Guest& guest);
    Result<void> admit();
    FileDescriptor* place_of(const TcpHello& hello, std::uint32_t other);
    void settle(FileDescriptor& place, FileDescriptor socket, TcpPurpose purpose);

    [[nodiscard]] const TcpCard& card(int rank) const { return mesh_.peers[static_cast<std::size_t>(rank)].card; }
    [[nodiscard]] Error with_others_gone(Error error) const;
    [[nodiscard]] bool has_gone(int rank) const;
    [[nodiscard]] bool is_whole(int rank) const;
    [[nodiscard]] std::string who(int rank) const;
    [[nodiscard]] std::string absentees() const;

    const GroupTerms& terms_;
    TcpMesh mesh_;
    FileDescriptor listener_;
    std::vector<SocketAddress> addresses_;
    int missing_ = 0;
    std::vector<TcpCall> calls_;    ///< to higher ranks
    std::vector<TcpProbe> probes_;  ///< of the lower ranks, by rank
    std::vector<Guest> guests_;
};

}  // namespace muster::runtime
