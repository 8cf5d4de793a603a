// --report FILE: this node's launcher writes its report for programs there (agent/supervision/report_file.h).
// Each node writes its own FILE: its host and exit code, and the verdict, which is the same on all nodes. On a shared
// file system, use %h in the name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// The values of %h, %j and %p in FILE.
struct ReportNames {
    std::string host;
    std::string job;  ///< A '/' in it becomes '_'.
    int pid = 0;      ///< The launcher's pid. It separates several launchers on one host.
};

/// FILE with the names inserted. %% is a percent sign. Nothing if another character follows a percent sign.
std::optional<std::string> report_path(std::string_view file, const ReportNames& names);

/// Checks that the file can be created or written. The error names the obstacle.
Result<void> check_report_path(const std::string& path);

/// Replaces `path` atomically: a reader sees the complete old file or the complete new one. Devices, pipes, mounted
/// files and this process's stdout and stderr (under any name) are written in place. A symbolic link is followed. Fails
/// if the reader of a pipe does not take the report within 5 s.
Result<void> write_report(const std::string& path, std::string_view text);

}  // namespace muster::launcher
