// Ranks of one host pass descriptors to each other: a star of Unix sockets around the lowest rank. The leader listens
// on an abstract address (no file; it vanishes with the process), a random token from the round's store, so no other
// program connects by mistake. If the address is reachable, both ranks use one kernel.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/transport/meeting_wait.h"

namespace muster::runtime {

/// The identity that a rank publishes before it connects.
struct LocalIdentity {
    std::string host;           ///< for messages
    std::string kernel;         ///< boot id
    std::string network_space;  ///< abstract addresses live in a network namespace
    int pid = 0;                ///< for messages; in a container it is the container's
    int node = 0;               ///< the launcher's number of the node
    std::string address;        ///< the listen address of this rank, 32 hexadecimal digits

    int rank = 0;  ///< in the whole group; the ranks that meet may be a part of it

    static LocalIdentity of_this_process(int rank);
    [[nodiscard]] std::string encode() const;
    static Result<LocalIdentity> decode(const std::string& text);
};

/// "rank 3 (pid 4711 on gpu07)".
std::string describe(const LocalIdentity& identity);

/// True if these two ranks can pass descriptors to each other.
bool can_meet(const LocalIdentity& a, const LocalIdentity& b);

/// The maximum number of ranks in one meeting: its descriptors travel in one message.
inline constexpr int local_ranks_max = 253;

/// Opened before the identities are exchanged, so that a rank that knows the address can connect at once.
struct LocalDoor {
    LocalIdentity identity;
    FileDescriptor listener;

    static Result<LocalDoor> open(int rank, int group_size);
};

/// One rank's end of the star.
class LocalMeeting {
  public:
    /// Connects ranks 0..size-1, all on this host. `identities` are in rank order. An error names all missing ranks, on
    /// every rank that joined.
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
