// Checks this node's GPUs with muster-gpus before workers start (diagnosis/gpu_use.h), and how busy they are while
// workers run. Without a driver it runs nothing.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/gpu_use.h"
#include "agent/evidence/gpu_baseline_file.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

/// Whether this host has an NVIDIA driver, or `nvml_library` (MUSTER_NVML_LIBRARY) names a library in its place.
bool has_gpu_driver(std::string_view nvml_library);

class GpuCheck {
  public:
    /// Memory of dead workers is waited for so long: less than the last call of a round, which others wait in.
    static constexpr Duration limit = 20s;

    struct Times {
        Duration answer = 5s;       ///< A driver that is slow to begin with takes one or two.
        Duration first_busy = 20s;  ///< Workers that begin use the driver themselves, and no kernel runs yet.
        Duration busy_pause = 60s;  ///< Drivers of some systems have hung where they were asked more often.
    };

    /// `environment` is the workers', of which CUDA_VISIBLE_DEVICES and MUSTER_NVML_LIBRARY count.
    GpuCheck(boost::asio::io_context& loop, const std::map<std::string, std::string>& environment, Times times);

    std::function<void(std::string)> on_notice;

    /// While none of our workers runs: names others' processes, and calls `go` when the memory of workers that have
    /// ended has come back or `limit` is over; at once where there is no driver. What is taken at the first call counts
    /// as somebody else's, unless an agent that died here without an end had found less. Another call takes the place
    /// of the one before.
    void when_free(std::function<void()> go);
    /// Asks every minute how busy the GPUs are, until drop(). The first time that the driver does not answer is the
    /// last, and is told: a faulty one may leave a process that cannot be killed. One that cannot be asked, or says
    /// that it fails, is asked once more.
    void watch_busy();
    /// Empty: watch_busy() has no answer.
    [[nodiscard]] const std::vector<native::GpuBusy>& busy() const { return busy_; }
    /// `go` is not called any more.
    void drop();

  private:
    /// Without an answer there are no GPUs; `why` is what is known of the cause.
    using Looked = std::function<void(const std::vector<GpuUse>&, std::string_view why)>;
    void look(std::vector<std::string> words, Looked looked);
    void wait(Instant until);
    void ask_busy(Duration pause, bool once_more);
    void tell(const std::string& line) const {
        if (on_notice) on_notice(line);
    }

    bool is_present_ = false;
    const Times times_;
    std::optional<std::string> visible_;
    GpuWatch watch_;
    GpuBaselineFile kept_;
    SideRuns runs_;
    boost::asio::steady_timer pause_;
    std::function<void()> go_;
    std::vector<native::GpuBusy> busy_;
    bool is_known_ = false;  // what was taken before our first workers
    bool told_ = false;      // that it waits
    Life life_;              // until drop()
};

}  // namespace muster::agent
