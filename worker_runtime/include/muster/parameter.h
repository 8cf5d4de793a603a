// A parameter of the model for the gradient reducer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/data_type.h"

namespace muster {

/// All fields except `data` are equal on all ranks: make() compares names, shapes, types and order.
struct Parameter {
    std::string name;                 ///< unique in the model; errors name it
    std::vector<std::int64_t> shape;  ///< empty: one element; a dimension of 0: no elements
    DataType type = DataType::f32;    ///< a floating type; the gradient has the same type
    void* data = nullptr;             ///< the parameter's elements, contiguous; must outlive the reducer
};

}  // namespace muster
