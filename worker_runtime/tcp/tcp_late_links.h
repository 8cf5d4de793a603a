// Connections between ranks of a large group that are made when they are first used: those for messages, and, with a
// rank that is no partner, one for news. The lower of the two ranks calls, the higher one waits for the call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/fork_guard.h"
#include "worker_runtime/tcp/mesh/tcp_door.h"
#include "worker_runtime/tcp/mesh/tcp_mesh.h"
#include "worker_runtime/tcp/mesh/tcp_mesh_builder.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// Thread-safe, except serve(), which one thread calls.
class TcpLateLinks final : private TcpHost {
  public:
    /// `mesh` outlives this, and has a door.
    static Result<std::unique_ptr<TcpLateLinks>> over(const GroupTerms& terms, const TcpMesh& mesh);

    /// The connections with `rank`; null before they are complete. They stay where they are.
    [[nodiscard]] const TcpPeer* with(int rank) const { return links_[static_cast<std::size_t>(rank)].load(); }
    /// The ranks with which there is a control connection from here.
    [[nodiscard]] std::vector<int> strangers() const;

    /// Makes them, or waits for them. Ends with an error at `deadline`, and after end().
    Result<const TcpPeer*> connect(int rank, Instant deadline);
    /// The group has failed: nobody waits any longer. A rank that is being called hears why.
    void end(const Error& why);

    /// Readable when serve() has something to do.
    [[nodiscard]] const FileDescriptor& bell() const { return epoll_; }
    /// Accepts calls, without waiting. The ranks whose control connection from here has become readable, once for each
    /// time. An error: no descriptor is left.
    Result<std::vector<int>> serve();

  private:
    TcpLateLinks(const GroupTerms& terms, const TcpMesh& mesh);
    [[nodiscard]] bool is_stranger(int rank) const;
    [[nodiscard]] const TcpCard& card(int rank) const override { return mesh_.card(rank); }
    TcpWelcome welcome(const TcpHello& hello) override;
    void settle(TcpStream& place, TcpStream connection, const TcpHello& hello) override;
    Result<void> add(int rank, TcpPeer peer);
    Result<void> watch(const FileDescriptor& socket, std::uint64_t what, std::uint32_t events) const;

    /// One pair's connections, out of the sight of forked children.
    struct Link {
        TcpPeer peer;
        std::unique_ptr<ForkGuard> guard;
    };

    const GroupTerms& terms_;
    const TcpMesh& mesh_;
    const ForkGuard listeners_;
    FileDescriptor epoll_;
    std::vector<std::atomic<const TcpPeer*>> links_;  ///< Indexed by rank.
    std::map<int, TcpPeer> arriving_;                 ///< Of serve()'s thread.
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int, Link> kept_;
    std::set<int> calling_;  ///< The ranks that a thread is calling.
    /// Their connections are open until the group ends: the other rank may have all of them, and take this one for
    /// dead.
    std::vector<std::unique_ptr<MeshBuilder>> given_up_;
    std::optional<Error> ended_;
};

}  // namespace muster::runtime
