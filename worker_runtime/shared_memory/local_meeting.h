// How the ranks of one host hand each other descriptors: a star of Unix sockets around the lowest of them. The leader
// listens at an abstract address (it has no file, and goes with the process) that is a random number from the round's
// store, so nobody can be met by mistake; that the address is reachable proves that both sit on one kernel.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/transport/meeting_wait.h"

namespace muster::runtime {

/// What a rank tells its group before anybody connects.
struct LocalIdentity {
    std::string host;           ///< for messages
    std::string kernel;         ///< boot id
    std::string network_space;  ///< abstract addresses live in a network namespace
    int pid = 0;                ///< for messages; in a container it is the container's
    int node = 0;               ///< the launcher's number of the node
    std::string address;        ///< where this rank would listen, 32 hexadecimal digits

    int rank = 0;  ///< in the whole group, of which those who meet may be a part

    static LocalIdentity of_this_process(int rank);
    [[nodiscard]] std::string encode() const;
    static Result<LocalIdentity> decode(const std::string& text);
};

/// "rank 3 (pid 4711 on gpu07)".
std::string describe(const LocalIdentity& identity);

/// Can these two hand each other descriptors?
bool can_meet(const LocalIdentity& a, const LocalIdentity& b);

/// Ranks of one host that one meeting can hold: its descriptors travel in one message.
inline constexpr int local_ranks_max = 253;

/// Opened before the identities are exchanged, so that whoever knows the address can connect at once.
struct LocalDoor {
    LocalIdentity identity;
    FileDescriptor listener;

    static Result<LocalDoor> open(int rank, int group_size);
};

/// One rank's end of the star.
class LocalMeeting {
  public:
    /// Connects ranks 0..size-1, all of which are on this host. `identities` in rank order. An error names all
    /// ranks that did not come, to everybody who did.
    static Result<LocalMeeting> hold(int rank, LocalDoor door, std::vector<LocalIdentity> identities,
                                     const MeetingWait& wait);

    /// A collective: gives `descriptor` to all, and gets all ranks', in rank order. Where a rank calls with `trouble`
    /// instead (its descriptor is then not looked at), every rank gets that rank's trouble as a limit_exceeded. Ranks
    /// that are late, or one that has gone, are named to all others.
    Result<std::vector<FileDescriptor>> share(const FileDescriptor& descriptor, const std::string& trouble,
                                              const MeetingWait& wait);

    [[nodiscard]] const LocalIdentity& identity(int rank) const { return identities_[static_cast<std::size_t>(rank)]; }

  private:
    LocalMeeting(int rank, std::vector<LocalIdentity> identities) : rank_(rank), identities_(std::move(identities)) {}
    Result<std::vector<FileDescriptor>> lead(const FileDescriptor& own, std::optional<Error> wrong,
                                             const MeetingWait& wait);
    Result<std::vector<FileDescriptor>> follow(const FileDescriptor& own, const std::optional<Error>& wrong,
                                               const MeetingWait& wait);

    int rank_;
    std::vector<LocalIdentity> identities_;
    std::vector<FileDescriptor> sockets_;  ///< the leader's: to each rank, its own empty; others': one, to the leader
};

}  // namespace muster::runtime
