// The agent's end of torch's timer protocol (diagnosis/worker_timers.h): a FIFO that workers write into.
// TORCHELASTIC_TIMER_FILE names it. It exists if TORCHELASTIC_ENABLE_FILE_TIMER is 1 in the launcher's environment. A
// worker whose timer expires gets the signal that it requested. The agent itself continues; torchrun's agent kills
// itself and leaves the other workers behind.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "agent/diagnosis/worker_timers.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/failure_cause.h"
#include "rendezvous/wire/native/worker_end.h"

namespace muster::agent {

class TimerFifo {
  public:
    explicit TimerFifo(boost::asio::io_context& loop) : fifo_(loop), expiry_(loop) {}
    ~TimerFifo();
    TimerFifo& operator=(TimerFifo&&) = delete;

    /// Where the environment asks for timers: makes the FIFO and writes its path into the environment for the workers.
    /// A path that is given stays, and an old FIFO there is replaced; else a private directory in `temporary` is made
    /// for it, which the destructor removes. An error names the path; what is no FIFO is left alone.
    Result<void> open(std::map<std::string, std::string>& environment, const std::string& temporary);

    void worker_started(std::uint32_t local_rank, std::int32_t pid) { leaders_[pid] = local_rank; }
    /// `timer_expired` where the signal of a timer was its end; else unknown. (A handler may have let it live on, to
    /// end of something else.)
    FailureCause worker_ended(std::int32_t pid, const WorkerEnd& end);

  private:
    void wait_for_requests();
    void read();
    void arm();
    void end_expired();

    struct Sent {
        std::int32_t signal = 0;
        std::string why;
    };

    boost::asio::posix::stream_descriptor fifo_;
    boost::asio::steady_timer expiry_;
    std::string path_;
    std::string directory_;  ///< that was made for it; empty: none
    WorkerTimers timers_;
    std::map<std::int32_t, std::uint32_t> leaders_;  ///< Keyed by pid of a running worker: its local rank.
    std::map<std::int32_t, Sent> sent_;              ///< The last signal, keyed by the leader's pid.
    Life life_;
};

}  // namespace muster::agent
