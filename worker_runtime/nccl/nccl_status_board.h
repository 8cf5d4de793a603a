// The status of the ranks of an NCCL group in the round's store: the first failure, each rank's progress, and its
// operations (nccl/operation_order.h). While operations are short, only compare() reads or writes it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/nccl/core/nccl_ranks.h"
#include "worker_runtime/nccl/operation_order.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

class NcclStatusBoard {
  public:
    /// Creates the board and publishes this rank. `ranks` are those of the group, in rank order.
    static Result<std::shared_ptr<NcclStatusBoard>> start(const GroupTerms& group, std::vector<NcclRank> ranks);

    [[nodiscard]] const std::vector<NcclRank>& ranks() const { return ranks_; }
    /// Returns a description such as "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const { return runtime::who(ranks_, rank); }
    /// Returns a description such as "communicator world, rank 0 (pid 4711 on gpu07)".
    [[nodiscard]] std::string here() const;

    /// Records that this rank begins its next collective. Returns its number, from 1.
    std::uint64_t begin(const OperationSignature& signature);

    /// Call this while waiting in an operation that began at `began`. After a while, at each interval, it publishes
    /// this rank's progress and looks for a failure. An error is another rank's failure, with its text.
    Result<void> check_alive(Instant began);

    /// Publishes this rank's operations and compares them with those of its two neighbours. Call it about once per
    /// second, from one thread. It sends two requests to the store, or none if nothing has run for a while. An error
    /// names two ranks and what each ran in the first operation that differs.
    Result<void> compare();

    /// Publishes a failure, unless another one was published before.
    void publish_failure(const std::string& why);
    /// Publishes that this rank has closed the communicator.
    void publish_left();
    /// Explains the end of the process of `rank`. Returns nothing if it had closed the communicator, the published
    /// failure if there is one, else that it died.
    [[nodiscard]] std::optional<std::string> explain_end(int rank) const;

    /// Returns the failure that caused `reported`. A process that ends closes its connections first, so NCCL's
    /// peer_closed comes before anybody can tell whose end it was: this waits for the published failure, `cause_wait`
    /// at most. Returns `reported` if it is no peer_closed, or if nobody names a cause.
    [[nodiscard]] Error cause_of(const Error& reported) const;

    /// At a deadline: describes the ranks that have not reached the current collective.
    std::string explain_missing();

  private:
    NcclStatusBoard(GroupTerms group, std::vector<NcclRank> ranks);
    [[nodiscard]] std::string rank_key(int rank) const;
    [[nodiscard]] std::string failure_key() const;
    [[nodiscard]] std::string own_text() const;
    void tell();
    /// Publishes the status if it has changed.
    void publish_status();
    [[nodiscard]] bool is_unchanged();
    Result<void> compare_with(int rank, std::string_view text);
    [[nodiscard]] Error differ(int rank, const OrderDifference& difference) const;
    [[nodiscard]] std::optional<std::string> published_failure() const;
    Result<std::vector<NcclProgress>> all_progress() const;

    const GroupTerms group_;
    const std::vector<NcclRank> ranks_;
    const Duration interval_;
    std::mutex publish_mutex_;  ///< held while own_text() is published, so that the newest text is the last
    std::mutex mutex_;          ///< Protects the members below. Never held during a request to the store.
    OperationOrder order_;
    bool left_ = false;
    bool told_ = false;  ///< own_text() is published
    Instant next_check_{};
    std::string dispute_;  ///< this rank's operations where a neighbour differs
    // Used by compare() only:
    std::optional<OrderDispute> found_;  ///< a difference with `found_with_`, which needs `dispute_` to find it
    int found_with_ = -1;
    std::string found_in_;  ///< the operation in which that rank was last seen
    int found_age_ = 0;
    std::uint64_t compared_count_ = 0;
    int quiet_age_ = 0;
};

}  // namespace muster::runtime
