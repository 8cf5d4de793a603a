// Ranks of one host pass descriptors to each other: a star of Unix sockets around the lowest rank. The leader listens
// on an abstract address: no file, and it vanishes with the process. If the address is reachable, both ranks use one
// kernel. /proc/net/unix shows the address to every user of the host, so it is no secret. Each side therefore asks the
// kernel whether the other runs as its own user, and demands a proof keyed with the ranks' key, or, where they have
// none, with what the leader publishes in the round's store: root of a container that shares this network namespace has
// our number where this process is root, too.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/shared_memory/local_identity.h"
#include "worker_runtime/transport/meeting_wait.h"

namespace muster::runtime {

/// The maximum number of ranks in one meeting: its descriptors travel in one message.
inline constexpr int local_ranks_max = 253;

/// Opened before the identities are exchanged, so that a rank that knows the address can connect at once.
struct LocalDoor {
    LocalIdentity identity;
    FileDescriptor listener;

    static Result<LocalDoor> open(int rank);
};

/// One rank's end of the star.
class LocalMeeting {
  public:
    /// Connects ranks 0..size-1, all on this host. `identities` are in rank order. An error names all missing ranks, on
    /// every rank that joined. Processes that are no rank of this group are refused, and hold up nobody. refused: a
    /// process that does not belong to the group listens at rank 0's address.
    static Result<LocalMeeting> hold(int rank, LocalDoor door, std::vector<LocalIdentity> identities,
                                     const MeetingWait& wait);

    /// A collective: passes `descriptor` to all ranks, and returns all ranks' descriptors in rank order. If a rank
    /// calls with `trouble` instead (its descriptor is ignored), every rank gets that text as limit_exceeded. All other
    /// ranks get the names of late or ended ranks.
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
    std::vector<FileDescriptor> sockets_;  ///< the leader: one per rank, its own empty; others: one, to the leader
};

}  // namespace muster::runtime
