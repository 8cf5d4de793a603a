// --report FILE: where this node's launcher leaves its report for programs (agent/supervision/report_file.h).
//
// FILE is each node's own: it holds the node's host and exit code beside the verdict, which is the same on all. On a
// file system that nodes share, write %h into the name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// What stands for %h, %j and %p in FILE.
struct ReportNames {
    std::string host;
    std::string job;  ///< a '/' in it becomes '_'
    int pid = 0;      ///< the launcher's: several on one host
};

/// FILE with its names filled in (%% is a percent sign), or nothing where another letter follows a percent sign.
std::optional<std::string> report_path(std::string_view file, const ReportNames& names);

/// Whether a file can be made there, or be written into: an error that names what is in the way.
Result<void> check_report_path(const std::string& path);

/// Replaces `path` in one step: a reader finds the old file or the new one, whole. What cannot be replaced, or must not
/// be, is written into: a device, a pipe, a mounted file, our own stdout and stderr under any name. Of a symbolic link
/// it is the file behind it, if there is one. Whoever does not take it within 5 s does not get it: an error.
Result<void> write_report(const std::string& path, std::string_view text);

}  // namespace muster::launcher
