// Writes lines to a stream without blocking the caller for long, even with a stopped terminal, a stalled reader or a
// full disk. The log and the workers' output use it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/base/time.h"

namespace muster {

/// For the last flush() of a process. A busy machine may not schedule a writer's thread for a second or two, and what
/// is not written by then is lost.
constexpr Duration last_flush_max = 5s;

/// A bounded buffer and a thread that writes it out; the thread starts with the first bytes.
///
/// When the buffer is full, add() waits up to `patience` for room. After that, text is dropped without waiting until
/// the buffer is half empty; then one line "... N lines skipped" replaces it. If no thread can be started, add()
/// writes what the stream takes within 1 ms, and flush() the rest. After an error (EPIPE, ENOSPC ...) the text is
/// dropped and later text is tried again, except on a closed pipe.
class ConsoleWriter {
  public:
    struct Limits {
        std::size_t buffer_max_bytes = 4 << 20;
        Duration patience = 250ms;
    };

    /// For text that does not go to a stream as it is.
    struct Target {
        /// Whole lines. Reports its own errors. The thread calls it.
        std::function<void(std::string_view text)> write;
        /// The line that replaces dropped ones. The thread calls it, and also add(), beside a running `write`.
        std::function<std::string(std::uint64_t lines)> skipped;
    };

    /// `fd` is not owned and must stay open while this lives; `name` is for the log: "stdout".
    ConsoleWriter(int fd, std::string name, Limits limits);
    ConsoleWriter(int fd, std::string name) : ConsoleWriter(fd, std::move(name), Limits{}) {}
    ConsoleWriter(Target target, Limits limits);
    /// Drops unwritten text; call flush() first. A thread that hangs in a write to a dead terminal is detached.
    ~ConsoleWriter();
    ConsoleWriter& operator=(ConsoleWriter&&) = delete;

    /// Queues all of `text` or none of it. Whole lines, except when a worker's bytes are forwarded as they arrive.
    void add(std::string_view text);
    /// True when everything has been written (or dropped) before `limit`.
    bool flush(Duration limit);

  private:
    void begin();

    struct Shared;  // outlives this when the thread hangs
    std::shared_ptr<Shared> shared_;
    std::thread thread_;
};

}  // namespace muster
