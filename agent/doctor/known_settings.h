// Variables of NCCL, gloo, PyTorch and others, one line each. Pure.
#pragma once

#include <span>
#include <string_view>

namespace muster::agent {

struct KnownSetting {
    std::string_view name;
    std::string_view help;
};

/// In alphabetical order.
std::span<const KnownSetting> known_settings();

}  // namespace muster::agent
