// Looks at this node for muster doctor. Each look is a program with its own deadline (muster-facts, muster-gpus), and
// all run side by side: one that hangs costs its deadline, is killed, and blocks no other. A program in uninterruptible
// sleep cannot be killed; it is left behind.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "agent/doctor/check_table.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/events/event.h"

namespace muster::agent {

/// Whether each GPU is tested behind the looks (`muster doctor --level 3`). It takes seconds for each.
enum class GpuTests { skipped, taken };

/// What a directory that does not exist means.
enum class MissingDirectory { is_a_fault, is_made_later };

struct LookPlan {
    std::vector<std::string> directories;  ///< Absolute paths of the directories to write to.
    std::set<std::string> skip;            ///< Looks that are not taken, and names of checks, which do not matter here.
    DoctorLimits limits;
    Variables environment;
    MissingDirectory missing = MissingDirectory::is_a_fault;
    GpuTests gpu_tests = GpuTests::skipped;
};

class NodeLooks {
  public:
    /// `loop` outlives it.
    explicit NodeLooks(boost::asio::io_context& loop) : loop_(loop), runs_(loop) {}

    /// `done` comes once from the loop, when every look has ended or met its deadline. Call it once.
    void start(LookPlan plan, std::function<void(DoctorFacts)> done);
    /// Ends those that run. `done` is not called any more.
    void drop();

  private:
    /// `then`, if there is one, runs before the look counts as ended.
    void take(const std::string& name, std::vector<std::string> words, std::int64_t limit_ms,
              std::function<void()> then = nullptr);
    /// A look of muster-facts, unless it is left out.
    void look_at(const char* look);
    /// The test of the GPU with this number among those that answered, and then of the next: side by side they would
    /// share the way to the host's memory.
    void test_gpu(std::size_t number);
    /// An all_reduce of the GPUs whose test was complete, as a job of this node.
    [[nodiscard]] std::vector<std::string> good_gpus() const;
    void copy_between_gpus();
    void reduce_between_gpus();
    /// The rules of the kernel's firewall, where a program that lists them is installed.
    void list_firewall();
    /// NVIDIA's own diagnosis, where it is installed.
    void ask_dcgm();
    /// ib_write_bw from each active RDMA port to itself, where it is installed. The last test.
    void write_by_rdma();
    [[nodiscard]] std::int64_t limit_of(std::string_view look) const;
    void end_one();

    boost::asio::io_context& loop_;
    SideRuns runs_;
    LookPlan plan_;
    DoctorFacts facts_;
    std::size_t missing_count_ = 0;
    std::function<void(DoctorFacts)> done_;
    Life life_;
};

/// What a job is told: of each finding above info "preflight: ...", as a warning, and the verdict.
std::vector<Event> preflight_events(std::vector<Finding> findings, const std::string& host);

}  // namespace muster::agent
