// Requests a dump of torch's flight recorder (ProcessGroupNCCL), if the user enabled it. With
// TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX each rank reads PREFIX<rank>.pipe. At any input it writes its record to
// TORCH_FR_DUMP_TEMP_FILE<rank> or TORCH_NCCL_DEBUG_INFO_TEMP_FILE<rank>. torchfrtrace reads these files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::agent {

class TorchDump {
  public:
    /// What torch is given: it looks once a second.
    static constexpr Duration limit = 5s;

    /// `environment` is the workers'.
    explicit TorchDump(const std::map<std::string, std::string>& environment);

    /// Nothing where nobody listens: another backend, or not enabled. Waits for nothing.
    void ask(std::int32_t rank, Instant now);
    /// A line for each rank whose dump has come since, or has not within `limit`.
    std::vector<std::string> poll(Instant now);
    /// Other workers run from now on.
    void forget() { asked_.clear(); }

  private:
    struct Asked {
        Instant at;
        std::int64_t written_ns = 0;  ///< Modification time of the earlier file.
    };

    std::string pipe_prefix_;  // empty: not enabled
    std::string file_prefix_;  // empty: a place of torch's own choice
    std::map<std::int32_t, Asked> asked_;
};

}  // namespace muster::agent
