// What the ranks of one NCCL group say to each other beside NCCL, through the round's store: the first failure, and how
// far each has come. Nothing is said or asked while operations are short.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/core/nccl_ranks.h"
#include "worker_runtime/cpu/meeting_place.h"

namespace muster::runtime {

class NcclNews {
  public:
    /// `ranks` of the group, in rank order. Says that this rank is there.
    static Result<std::shared_ptr<NcclNews>> start(const GroupTerms& group, std::vector<NcclRank> ranks);

    [[nodiscard]] const std::vector<NcclRank>& ranks() const { return ranks_; }
    /// "rank 3 (pid 4711 on gpu07)".
    [[nodiscard]] std::string who(int rank) const { return runtime::who(ranks_, rank); }
    /// "communicator world, rank 0 (pid 4711 on gpu07)".
    [[nodiscard]] std::string here() const;

    /// This rank is in a collective now, or in none (an empty `what`).
    void begin(std::uint64_t number, std::string what);

    /// For the wait in an operation that began at `began`: at first nothing, later, at each interval, says where this
    /// rank is and asks for a failure. An error is another rank's failure, in its words.
    Result<void> look(Instant began);

    /// Tells the others, unless another failure was told before.
    void tell_failure(const std::string& why);
    /// This rank has closed the communicator.
    void tell_left();
    /// `rank`'s process has ended: what that means for the group. Nothing when it had closed the communicator; what the
    /// rank told before, where it did; else that it died.
    [[nodiscard]] std::optional<std::string> explain_end(int rank) const;

    /// At a deadline: what is known about the ranks that have not come to the present collective.
    std::string explain_missing();

  private:
    NcclNews(GroupTerms group, std::vector<NcclRank> ranks);
    [[nodiscard]] std::string rank_key(int rank) const;
    [[nodiscard]] std::string failure_key() const;
    void tell(const NcclProgress& progress);
    [[nodiscard]] std::optional<std::string> told_failure() const;
    Result<std::vector<NcclProgress>> all_progress() const;

    const GroupTerms group_;
    const std::vector<NcclRank> ranks_;
    const Duration interval_;
    std::mutex mutex_;
    NcclProgress progress_;
    bool told_ = false;  ///< the others have `progress_`
    Instant next_look_{};
};

}  // namespace muster::runtime
