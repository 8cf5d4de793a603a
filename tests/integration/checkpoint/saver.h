// A job that saves a tiny model, in processes that a test may kill, and the next job, which must find what was saved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "tests/integration/checkpoint/shared_board.h"

namespace muster::test {

/// A few hundred bytes, of which each rank writes a part.
struct TinyModel {
    std::vector<float> weight;
    std::vector<double> momentum;  ///< sharded
    std::uint64_t begin = 0;
    std::string cursor;

    TinyModel(int rank, int world);
    void train_to(std::int64_t step);
    CheckpointState state();
    [[nodiscard]] bool is_at(std::int64_t step) const;

  private:
    int rank_, world_;
};

struct SaverJob {
    std::string directory;
    int rank = 0, world = 1;
    std::int64_t round = 0;
    std::vector<std::int64_t> steps;
    WhenBusy when_busy = WhenBusy::wait;
    int keep_last = 1;
    bool goes_on = false;  ///< after a save that has failed: then the board counts those
};

/// Marks of a saver, for the tracer: before the save of its second step, and after its last one; before and after a
/// load.
inline constexpr int mark_begin = 1, mark_end = 2;

/// Saves the steps one by one and tells the board of each that is safe. The process's exit code.
int run_saver(const SharedBoard& board, const SaverJob& job);

/// A fresh job of the directory, alone: opens, loads and compares. Tells the board of the step it has found.
int run_loader(const SharedBoard& board, const SaverJob& job);

/// What run_loader() does, in this process: the step it has found, 0 where there is none, or a complaint.
Result<std::int64_t> load_alone(Communicator& alone, const SaverJob& job);

/// In a process of its own: a loader finds `least` or a later step, saves another, and finds that. A complaint, or
/// nothing.
std::string trouble_after(const SaverJob& job, std::int64_t least);

/// Why a process ended as it did not ought to; nothing where it has exited with 0.
std::string trouble_of(int wait_status);

}  // namespace muster::test
