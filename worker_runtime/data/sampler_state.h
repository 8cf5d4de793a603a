// The state of an elastic sampler as text: one JSON object with exactly these fields. It is read from checkpoints, so
// every error in it must be detected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "muster/elastic_sampler.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

struct SamplerState {
    std::uint64_t samples = 0;
    std::uint64_t seed = 0;
    SampleOrder order = SampleOrder::torch;
    std::uint64_t epoch = 0;
    std::uint64_t cursor = 0;  ///< Less than samples.
    std::uint64_t batch_size = 0;
};

std::string encode_state(const SamplerState& state);

/// bad_frame names the field that is missing, unknown, of another type or out of range.
Result<SamplerState> decode_state(std::string_view text);

std::string_view name_of(SampleOrder order);

}  // namespace muster::runtime
