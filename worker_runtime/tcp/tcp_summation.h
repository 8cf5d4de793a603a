// Sums the elements of all ranks of a group, in rank order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "muster/operation.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/tcp/tcp_lanes.h"

namespace muster::runtime {

class TcpSummation {
  public:
    /// `operation` outlives this.
    explicit TcpSummation(const Operation& operation) : operation_(operation) {}

    /// After all ranks have agreed.
    void receive_weights(const TcpLanes& lanes) {
        weights_ = lanes.weights();
        if (std::all_of(weights_.begin(), weights_.end(), [](double weight) { return weight == 1; })) weights_.clear();
    }

    /// `inputs` in rank order.
    void sum(const std::vector<const void*>& inputs, std::byte* output, std::size_t bytes) const {
        void* const outputs[] = {output};
        reduce({.type = operation_.type,
                .reduce = operation_.reduce,
                .inputs = inputs.data(),
                .input_count = static_cast<int>(inputs.size()),
                .outputs = outputs,
                .output_count = 1,
                .count = bytes / size_of(operation_.type),
                .weights = weights_.empty() ? nullptr : weights_.data()});
    }

  private:
    const Operation& operation_;
    std::vector<double> weights_;
};

}  // namespace muster::runtime
