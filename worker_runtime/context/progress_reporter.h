// Sends heartbeats and sections (muster/section.h) to the agent, and shares the step record with it. One per process.
// It uses the channel of the Context if there is one, else its own connection.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/local/messages.h"
#include "worker_runtime/core/step_record.h"

namespace muster::runtime {

class AgentLink;

class ProgressReporter {
  public:
    static ProgressReporter& of_process();

    void heartbeat();
    void progress(std::int64_t step);
    /// Returns a number for leave(); 0: nothing was sent.
    std::uint64_t enter(std::string name, Duration limit);
    void leave(std::uint64_t number);

    /// The agent accepts one connection per worker: closes ours before a Context makes its own.
    void close_own_connection();
    /// Sends through `link` from now on. The link calls drop_channel() before it is destroyed.
    void use_channel(AgentLink& link);
    void drop_channel(const AgentLink& link);

  private:
    struct Entered {
        std::uint64_t number;
        local::Section section;
    };

    [[nodiscard]] bool is_ours() const;
    void send(const local::Message& message, const FileDescriptor* gift = nullptr);
    void give_record();
    void send_section();
    void connect();

    std::mutex mutex_;
    const pid_t owner_;  // a forked child shares the memory, but must not report
    AgentLink* link_ = nullptr;
    FileDescriptor own_;
    bool own_tried_ = false;  // one attempt is enough: an absent agent does not appear later; a Context makes its own
    std::uint64_t next_ = 1;
    std::vector<Entered> entered_;
    std::chrono::steady_clock::time_point heartbeat_at_{};
    std::chrono::steady_clock::time_point progress_at_{};
    StepRecord* record_ = nullptr;  // in memory_, which stays mapped: reducers write to it until the process ends
    FileDescriptor memory_;
    std::string record_round_;

    ProgressReporter();
};

}  // namespace muster::runtime
