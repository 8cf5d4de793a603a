// muster --metrics-file DIR: a file for node_exporter's textfile collector, which reads whole files that end in .prom.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/error.h"

namespace muster::agent {

/// A thread writes, so that a slow or full disk delays nobody. The file is replaced by a rename in its directory and
/// has mode 0644. A failure is logged once, until a write succeeds again. Who writes holds a lock on PATH.lock, because
/// numbers of processes are equal in two containers: of several agents one writes, and the next one when it has ended.
class MetricsFile {
  public:
    /// DIR/muster_JOB.prom, with JOB as job_in_name() writes it: two jobs never share a file.
    static std::string path_in(const std::string& directory, std::string_view job);

    /// Writes `page` on the thread. Error: the directory is missing, or is none. Whatever else is wrong may pass, and
    /// is a warning.
    static Result<std::unique_ptr<MetricsFile>> open(const std::string& path, std::string_view page,
                                                     Duration last_write_max = last_flush_max);
    /// Removes the file, because the collector would read a stale one for ever. Waits up to `last_write_max` for the
    /// thread.
    ~MetricsFile();
    MetricsFile& operator=(MetricsFile&&) = delete;

    /// Replaces the page. Of those that wait for the disk, only the newest is written.
    void write(std::string_view page);
    /// True when everything has been written, or has failed, before `limit`.
    bool flush(Duration limit) { return writer_.flush(limit); }

    /// Removes the file at `path` if `writer`, which has ended, has written it, and what it may have left beside it.
    /// For the guardian: no thread, no log.
    static void remove(const std::string& path, pid_t writer);

  private:
    class Target;
    MetricsFile(std::shared_ptr<Target> target, Duration last_write_max);
    ConsoleWriter writer_;
    const Duration last_write_max_;
};

}  // namespace muster::agent
