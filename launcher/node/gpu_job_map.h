// --hpc-job-mapping-dir DIR: which job uses which GPU of this host, for dcgm-exporter's option of the same name. DIR
// has a file for each GPU, named by its index, with one job a line. dcgm-exporter puts them into the label hpc_job.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Other jobs and prologs of schedulers have lines in the same files: only those that this object added are removed.
/// Writers of muster lock the directory meanwhile. Files are replaced as a whole.
class GpuJobMap {
  public:
    /// Made before the guardian is forked, which shares it.
    GpuJobMap(std::string directory, std::string_view job);
    ~GpuJobMap();
    GpuJobMap& operator=(GpuJobMap&&) = delete;

    /// Adds the job to the files of these GPUs. A job that has a line there already gets no second one, because
    /// dcgm-exporter would send two equal series. A missing directory is no error: dcgm-exporter does not run then.
    Result<void> add(const std::vector<std::size_t>& gpus);
    /// Removes what add() added, in this process or in the one that forked it. Files without a line are removed.
    void release();

    /// dcgm-exporter writes labels as they are: a quotation mark or a backslash would end its page for all GPUs.
    static std::string line_of(std::string_view job);
    static constexpr std::size_t gpus_max = 64;  ///< GPUs with a higher index have no line.

  private:
    struct Shared;  // of this process and its guardian
    const std::string directory_;
    const std::string line_;
    Shared* shared_;
};

}  // namespace muster::launcher
