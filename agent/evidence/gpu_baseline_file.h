// Keeps the GPU use from before an agent's first workers, beyond the agent's death. The next agent then recognizes
// memory that the dead one's workers have not freed. One file in shared memory per agent, locked while the agent lives.
// A clean end removes it.
#pragma once

#include <string>

#include "agent/diagnosis/gpu_use.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

class GpuBaselineFile {
  public:
    /// Nothing is read or written yet.
    explicit GpuBaselineFile(std::string directory = "/dev/shm");
    /// Removes the file.
    ~GpuBaselineFile();
    GpuBaselineFile& operator=(GpuBaselineFile&&) = delete;

    /// The least that agents of this user that died had found, of the GPUs in `own`. Their files are removed.
    GpuBaseline take_over(const GpuBaseline& own);
    /// In the place of what was kept before. Where it cannot be written the next agent knows nothing.
    void keep(const GpuBaseline& baseline);

  private:
    std::string directory_;
    std::string prefix_;  ///< Prefix of the names of this user's files.
    std::string path_;
    FileDescriptor file_;
};

}  // namespace muster::agent
