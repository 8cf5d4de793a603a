// A parameter of the model, as the gradient reducer knows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/data_type.h"

namespace muster {

/// The same on all ranks but for `data`: names, shapes, types and their order are compared when a reducer is made.
struct Parameter {
    std::string name;                 ///< unique in the model; errors use it
    std::vector<std::int64_t> shape;  ///< empty: one element; a dimension of 0: none
    DataType type = DataType::f32;    ///< a floating type; the gradient has the same
    void* data = nullptr;             ///< the parameter's own elements, contiguous; must outlive the reducer
};

}  // namespace muster
