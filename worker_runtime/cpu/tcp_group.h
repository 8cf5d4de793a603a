// The ranks of a group over TCP, and the news of its end.
//
// Whoever finds a failure first tells all others over the control connections; each of them ends with that first
// failure, in the same words. A rank that leaves in order says so; one whose connections end without a word has died.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/cpu/fork_guard.h"
#include "worker_runtime/cpu/tcp_mesh.h"
#include "worker_runtime/cpu/transport.h"

namespace muster::runtime {

class TcpGroup {
  public:
    TcpGroup(int rank, std::string id, TcpMesh mesh, FileDescriptor wake);
    /// Tells the others that this rank has left, unless the group has failed.
    ~TcpGroup();
    TcpGroup(const TcpGroup&) = delete;
    TcpGroup& operator=(const TcpGroup&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(mesh_.peers.size()); }
    [[nodiscard]] int stripes() const { return mesh_.stripes; }
    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] const TcpPeer& peer(int rank) const { return mesh_.peers[static_cast<std::size_t>(rank)]; }
    /// Ranks on this host, this one included.
    [[nodiscard]] int ranks_here() const { return ranks_here_; }
    /// How long a waiting thread may look for news itself before it sleeps; nothing where ranks outnumber cores.
    [[nodiscard]] Duration spin(Patience patience) const;
    /// Readable once the group has failed.
    [[nodiscard]] const FileDescriptor& wake() const { return wake_; }

    // All from any thread.

    /// Ends the group with this failure, unless it has one already; the first one is returned. `unfinished` is the
    /// collective's number that this rank has given up; 0: none.
    Error fail(Errc code, const std::string& text, std::uint64_t unfinished = 0);
    /// The first failure; the group must have one.
    [[nodiscard]] Error failure() const;
    /// Has the group failed because a rank gave up collective `number`?
    [[nodiscard]] bool gave_up(std::uint64_t number) const;
    /// The control connection with `rank` has become readable. An error is the group's end; a rank that left in order,
    /// or died, is none until somebody needs it. True when nothing more will be heard from it.
    Result<bool> hear(int rank);
    /// The same for who watches a connection while nothing is being carried: a death is a failure too, at once.
    Result<bool> hear_or_lose(int rank);
    /// A connection with `rank` has ended (`failure` 0) or failed while `doing`. Looks for the reason, which was sent
    /// before the end.
    Error lost(int rank, int failure, const std::string& doing);

    /// "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const;

  private:
    enum class Told { nothing, failed, left, silent, ended };
    /// What a control connection says: with `failed` and `silent`, more.
    struct News {
        Told what = Told::nothing;
        Errc code = Errc::io;
        std::uint64_t unfinished = 0;
        std::string text;
    };
    [[nodiscard]] News listen(int rank) const;
    Result<bool> take(int rank, const News& news);

    const int rank_;
    const std::string id_;
    const TcpMesh mesh_;
    const FileDescriptor wake_;
    int ranks_here_ = 1;
    const ForkGuard fork_guard_;
    mutable std::mutex mutex_;
    std::optional<Error> failure_;
    std::uint64_t unfinished_ = 0;  ///< the failure's
};

}  // namespace muster::runtime
