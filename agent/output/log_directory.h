// Creates the directories that supervision/log_layout names. A directory that contains a file is never removed.
#pragma once

#include <map>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::agent {

/// TMPDIR or, where that is not there for us, what Python's tempfile takes, which torchrun asks: a scheduler's TMPDIR
/// may be missing on some hosts. Absolute, because workers may change their directory.
std::string temporary_directory(const std::map<std::string, std::string>& environment);

struct LogDirectoryConfig {
    std::string base;       ///< --log-dir, created if missing. Empty: a new "torchelastic_<8 random>" in `temporary`.
    std::string temporary;  ///< Parent of the generated directory.
    std::string job;        ///< Part of a name. '/' becomes '_'.
    bool none = false;      ///< --log-dir /dev/null: no directory.
};

class LogDirectory {
  public:
    /// Touches nothing yet.
    explicit LogDirectory(LogDirectoryConfig config) : config_(std::move(config)) {}

    /// "<base>/<job>_<8 random>", made at the first call, the same at each later one; empty with `none`. The first call
    /// comes before anybody joins, so that a wrong --log-dir is told by then.
    Result<std::string> run_directory();
    /// What run_directory() has made; empty before.
    [[nodiscard]] const std::string& made() const { return run_; }
    /// `path` and what is missing above it.
    static Result<void> make(const std::string& path);
    /// Puts an error file of an earlier worker of the same attempt aside ("error.<mark>.json"), so that it is not
    /// taken for the next failure's.
    static void set_aside(const std::string& error_file, const std::string& mark);
    /// The base, where it was made here and nobody asked for it; else empty.
    [[nodiscard]] std::string own_base() const { return config_.base.empty() ? base_ : std::string(); }
    /// Removes the empty directories of a run whose base was made here and which nobody asked for, and the directory of
    /// a run that had no round. Errors are ignored.
    void remove_if_empty();

  private:
    Result<void> make_base();
    LogDirectoryConfig config_;
    std::string base_;
    std::string run_;
};

/// Removes `path` and what is below it, as far as it holds no file. Errors are ignored.
void remove_empty_folders(const std::string& path);

}  // namespace muster::agent
