// A thread that waits for descriptors to become readable: peers' pidfds (a process has ended) and the agent's channel.
// One per process, however many communicators it has.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::runtime {

class FdWatch {
  public:
    /// Starts the thread, with signals blocked in it.
    static Result<std::shared_ptr<FdWatch>> start();
    ~FdWatch();
    FdWatch& operator=(FdWatch&&) = delete;

    /// Calls `ready` in the watch's thread when `fd` is readable or closed, and again while it returns true. The caller
    /// owns `fd` and keeps it open until remove() has returned.
    Result<std::uint64_t> add(const FileDescriptor& fd, std::function<bool()> ready);
    /// Afterwards `ready` neither runs nor will run. Do not call it within a `ready`.
    void remove(std::uint64_t id);

  private:
    struct Entry {
        int fd = -1;
        std::function<bool()> ready;
    };
    FdWatch() = default;
    void run();

    FileDescriptor epoll_;
    FileDescriptor stop_;
    std::thread thread_;
    std::mutex mutex_;  ///< held while a `ready` runs
    std::map<std::uint64_t, Entry> entries_;
    std::uint64_t next_id_ = 1;  ///< 0 is the id of the stop descriptor
};

}  // namespace muster::runtime
