#include "worker_runtime/wires/power_plan.h"

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

std::string PowerSettings::name() const {
    return cat("PowerSGD of rank ", columns, " from step ", start_step);
}

PowerPlan PowerSettings::plan(std::span<const Parameter> parameters, const GradientBucket& bucket) const {
    PowerPlan plan;
    if (bucket.gradients.type != DataType::f32) return plan;
    for (const auto& slice : bucket.slices) {
        const auto& shape = parameters[static_cast<std::size_t>(slice.parameter)].shape;
        const std::size_t rows = shape.empty() ? 0 : static_cast<std::size_t>(shape[0]);
        const std::size_t row_elements = rows == 0 ? 0 : slice.count / rows;
        if (2 * columns * (rows + row_elements) > slice.count || slice.count == 0) {
            plan.others.push_back(slice);
            plan.other_elements += slice.count;
            continue;
        }
        plan.matrices.push_back({.slice = slice,
                                 .rows = rows,
                                 .row_elements = row_elements,
                                 .p_offset = plan.p_elements,
                                 .q_offset = plan.q_elements});
        plan.p_elements += rows * columns;
        plan.q_elements += row_elements * columns;
    }
    return plan;
}

}  // namespace muster::runtime
