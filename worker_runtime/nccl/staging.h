// Host memory in an operation on the GPU: copied to device memory before, and back after. GPU memory is used directly.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/nccl_operation.h"
#include "worker_runtime/nccl/nccl_queue.h"

namespace muster::runtime {

/// The staging memory of one communicator, for one operation at a time.
class Staging {
  public:
    explicit Staging(std::shared_ptr<NcclProcess> process) : process_(std::move(process)) {}
    ~Staging();
    Staging& operator=(Staging&&) = delete;

    /// Returns `operation` with device memory instead of host memory. The copies to it are enqueued on the stream.
    Result<Operation> bring(const Operation& operation, const NcclPlace& place, NcclQueue& stream);
    /// Copies the output of `staged` back to that of `operation`.
    Result<void> take_back(const Operation& operation, const Operation& staged, const NcclPlace& place,
                           NcclQueue& stream);

    [[nodiscard]] bool on_host(const void* memory) const;

  private:
    /// Grows by doubling. Smaller blocks are kept until the end, because a free would wait for every kernel of the GPU.
    struct Room {
        std::vector<void*> blocks;
        std::size_t size_bytes = 0;
    };
    Result<void*> room(Room& room, std::size_t size_bytes);

    std::shared_ptr<NcclProcess> process_;
    Room input_;
    Room output_;
};

}  // namespace muster::runtime
