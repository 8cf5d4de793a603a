// Checks this node's GPUs with muster-gpus before workers start (diagnosis/gpu_use.h). Without a driver it runs
// nothing.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/diagnosis/gpu_use.h"
#include "agent/evidence/gpu_baseline_file.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

/// Whether this host has an NVIDIA driver, or `nvml_library` (MUSTER_NVML_LIBRARY) names a library in its place.
bool has_gpu_driver(std::string_view nvml_library);

class GpuCheck {
  public:
    /// Memory of dead workers is waited for so long: less than the last call of a round, which others wait in.
    static constexpr Duration limit = 20s;

    /// `environment` is the workers', of which CUDA_VISIBLE_DEVICES and MUSTER_NVML_LIBRARY count.
    GpuCheck(boost::asio::io_context& loop, const std::map<std::string, std::string>& environment);

    std::function<void(std::string)> on_notice;

    /// While none of our workers runs: names others' processes, and calls `go` when the memory of workers that have
    /// ended has come back or `limit` is over; at once where there is no driver. What is taken at the first call counts
    /// as somebody else's, unless an agent that died here without an end had found less. Another call takes the place
    /// of the one before.
    void when_free(std::function<void()> go);
    /// `go` is not called any more.
    void drop();

  private:
    void look(std::function<void(const std::vector<GpuUse>&)> use);
    void wait(Instant until);
    void tell(const std::string& line) const;

    bool is_present_ = false;
    std::optional<std::string> visible_;
    GpuWatch watch_;
    GpuBaselineFile kept_;
    SideRuns runs_;
    boost::asio::steady_timer pause_;
    std::function<void()> go_;
    bool is_known_ = false;                                  // what was taken before our first workers
    bool told_ = false;                                      // that it waits
    std::shared_ptr<char> life_ = std::make_shared<char>();  // handlers hold it weakly
};

}  // namespace muster::agent
