// Writes lines to a stream of this process without ever letting that stream stop anybody: a stopped terminal, a pipe
// whose reader sleeps, a full disk. The log and the workers' output go through it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/base/time.h"

namespace muster {

/// A bounded buffer and a thread that writes it out; the thread starts with the first bytes.
///
/// Who reads at any reasonable rate loses nothing: when the buffer is full, add() waits up to `patience` for room. If
/// none comes, text is dropped, at once and without waiting again, until the buffer is half empty; then one line
/// "... N lines skipped" stands in its place. Where no thread can be had, flush() writes. A stream that is broken
/// (EPIPE, ENOSPC ...) swallows what it is given and is tried again with what comes later, except a closed pipe, which
/// nobody can open again.
class ConsoleWriter {
  public:
    struct Limits {
        std::size_t buffer_max_bytes = 4 << 20;
        Duration patience = 250ms;
    };

    /// `fd` is not owned and must stay open while this lives; `name` is for the log: "stdout".
    ConsoleWriter(int fd, std::string name, Limits limits);
    ConsoleWriter(int fd, std::string name) : ConsoleWriter(fd, std::move(name), Limits{}) {}
    /// Gives up what is left; flush() first. A thread that hangs in a write to a dead terminal is left behind.
    ~ConsoleWriter();
    ConsoleWriter(const ConsoleWriter&) = delete;
    ConsoleWriter& operator=(const ConsoleWriter&) = delete;

    /// All of `text` or none of it. Whole lines, except where one worker's bytes are forwarded as they come.
    void add(std::string_view text);
    /// True when everything has been written (or given up) before `limit`.
    bool flush(Duration limit);

  private:
    void begin();

    struct Shared;  // outlives this when the thread hangs
    std::shared_ptr<Shared> shared_;
    std::thread thread_;
};

}  // namespace muster
