// What the ranks of an NCCL group publish in the round's store, beside NCCL: the first failure, each rank's progress,
// and its operations (nccl/operation_order.h). While operations are short, only compare() reads or writes.
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
    /// `ranks` of the group, in rank order. Says that this rank is there.
    static Result<std::shared_ptr<NcclStatusBoard>> start(const GroupTerms& group, std::vector<NcclRank> ranks);

    [[nodiscard]] const std::vector<NcclRank>& ranks() const { return ranks_; }
    /// "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const { return runtime::who(ranks_, rank); }
    /// "communicator world, rank 0 (pid 4711 on gpu07)".
    [[nodiscard]] std::string here() const;

    /// This rank is in its next collective now; gives its number, from 1.
    std::uint64_t begin(const OperationSignature& signature);

    /// For the wait in an operation that began at `began`: at first nothing, later, at each interval, says where this
    /// rank is and asks for a failure. An error is another rank's failure, in its words.
    Result<void> check_alive(Instant began);

    /// To be called about once a second, by one thread: says what this rank has run, and compares it with what its two
    /// neighbours have. Two messages to the store; none when nothing has run for a while. An error names two ranks and
    /// what each ran in the first operation in which they differ.
    Result<void> compare();

    /// Tells the others, unless another failure was told before.
    void publish_failure(const std::string& why);
    /// This rank has closed the communicator.
    void publish_left();
    /// `rank`'s process has ended: what that means for the group. Nothing when it had closed the communicator; what the
    /// rank told before, where it did; else that it died.
    [[nodiscard]] std::optional<std::string> explain_end(int rank) const;

    /// At a deadline: what is known about the ranks that have not come to the present collective.
    std::string explain_missing();

  private:
    NcclStatusBoard(GroupTerms group, std::vector<NcclRank> ranks);
    [[nodiscard]] std::string rank_key(int rank) const;
    [[nodiscard]] std::string failure_key() const;
    [[nodiscard]] std::string own_text() const;
    void tell();
    /// Unless the others have what there is to tell.
    void publish_status();
    [[nodiscard]] bool is_unchanged();
    Result<void> compare_with(int rank, std::string_view text);
    [[nodiscard]] Error differ(int rank, const OrderDifference& difference) const;
    [[nodiscard]] std::optional<std::string> published_failure() const;
    Result<std::vector<NcclProgress>> all_progress() const;

    const GroupTerms group_;
    const std::vector<NcclRank> ranks_;
    const Duration interval_;
    std::mutex publish_mutex_;  ///< held while own_text() goes out, so that an older one never comes later
    std::mutex mutex_;          ///< Protects the members below. Never held during a request to the store.
    OperationOrder order_;
    bool left_ = false;
    bool told_ = false;  ///< the others have own_text()
    Instant next_check_{};
    std::string dispute_;  ///< this rank's words on where a neighbour differs
    // Of compare() alone.
    std::optional<OrderDispute> found_;  ///< with `found_with_`, who knows by `dispute_` what to compare
    int found_with_ = -1;
    std::string found_in_;  ///< the operation in which that rank was seen then
    int found_age_ = 0;
    std::uint64_t compared_count_ = 0;
    int quiet_age_ = 0;
};

}  // namespace muster::runtime
