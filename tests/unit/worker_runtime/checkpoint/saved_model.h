// A model with replicated and sharded state for tests of checkpoints, and ranks that are threads around it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "tests/support/effort.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_group.h"

namespace muster::test {

/// The round's store, in this process's memory.
class StoreInMemory {
  public:
    /// A connection to it.
    std::unique_ptr<Store> connect();
    [[nodiscard]] std::size_t key_count() const;

  private:
    class Connection;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string, std::less<>> values_;
};

/// What one rank has of a small model: two replicated tensors and an odd-sized sharded one.
struct SavedModel {
    int rank = 0, world = 1;
    std::vector<float> weight;
    std::vector<std::int64_t> counts;
    std::vector<double> momentum;  ///< this rank's part
    std::uint64_t momentum_begin = 0;
    std::string cursor, generator;

    /// All zero.
    SavedModel(int rank_of, int world_of);
    /// What a run has after `step` steps, the same for every world.
    void train_to(std::int64_t step);
    /// `elements` of the sharded tensor, and of the large replicated one.
    static constexpr std::uint64_t momentum_count = 1003;
    /// This one has more than 1 MiB, so that it is spread over the ranks and goes to a neighbour in parts. Under a
    /// sanitizer little more.
    static constexpr std::uint64_t weight_count = under_sanitizer ? 300'000 : 600'000;

    CheckpointState state();
    /// After load(): takes over the texts.
    void take(const CheckpointState& state);
    /// Equal to one that was trained to `step`? The generator only where it is this rank's own.
    [[nodiscard]] bool is_at(std::int64_t step, bool same_world = true) const;
};

/// Runs `body` on `world` ranks that share a fresh store and open `directory`. Gives the first complaint.
std::string with_checkpointers(const std::string& directory, int world, std::int64_t round,
                               const std::function<std::string(Checkpointer&, SavedModel&)>& body,
                               CheckpointOptions options = {});

/// Trains to each of `steps` in turn, and saves; waits for each.
std::string save_steps(const std::string& directory, int world, std::int64_t round,
                       const std::vector<std::int64_t>& steps, CheckpointOptions options = {});

/// Loads into fresh models: "step 12" of the report, "none", or the error. A complaint where a model is not at that
/// step.
std::string load_in(const std::string& directory, int world, std::int64_t round, bool same_world = true);

/// The names in a folder, joined by blanks.
std::string names_of(const std::string& folder);

}  // namespace muster::test
