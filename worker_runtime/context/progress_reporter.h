// What this process tells its agent beside training: heartbeats and sections (muster/section.h). One for a process;
// over the channel of its Context where there is one, else over a connection of its own.
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

namespace muster::runtime {

class AgentLink;

class ProgressReporter {
  public:
    static ProgressReporter& of_process();

    void heartbeat();
    /// A number for leave(); 0: nobody is told.
    std::uint64_t enter(std::string name, Duration limit);
    void leave(std::uint64_t number);

    /// The agent takes one connection of a worker: ours gives way before a Context makes its own.
    void close_own_connection();
    /// Speaks through `link` from now on, which says drop_channel() before it goes.
    void use_channel(AgentLink& link);
    void drop_channel(const AgentLink& link);

  private:
    struct Entered {
        std::uint64_t number;
        local::Section section;
    };

    [[nodiscard]] bool is_ours() const;
    void send(const local::Message& message);
    void send_section();
    void connect();

    std::mutex mutex_;
    const pid_t owner_;  // a forked child has the memory, not the life
    AgentLink* link_ = nullptr;
    FileDescriptor own_;
    bool own_tried_ = false;  // an agent that is not there does not come; nor is it tried beside a Context's
    std::uint64_t next_ = 1;
    std::vector<Entered> entered_;
    std::chrono::steady_clock::time_point heartbeat_at_{};

    ProgressReporter();
};

}  // namespace muster::runtime
