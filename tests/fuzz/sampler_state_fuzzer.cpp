// The state of an elastic sampler, as it is read back from a checkpoint: any bytes give an error, or a state that is
// written as it was read and that a sampler can go on from.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "worker_runtime/data/sampler_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster;
    const auto state = runtime::decode_state({reinterpret_cast<const char*>(data), size});
    if (!state) return 0;
    const auto text = runtime::encode_state(*state);
    const auto again = runtime::decode_state(text);
    MUSTER_CHECK(again.has_value() && runtime::encode_state(*again) == text, text);
    auto sampler = ElasticSampler::make(
        {.sample_count = state->samples, .batch_size = 1, .seed = state->seed, .order = state->order});
    if (!sampler) return 0;  // too many samples for torch's order
    MUSTER_CHECK(sampler->load_state(text).has_value(), text);
    const auto step = sampler->next();
    MUSTER_CHECK(step.epoch == state->epoch && step.first == state->cursor && step.count > 0, text);
    MUSTER_CHECK(sampler->commit(step).has_value() && sampler->cursor() < state->samples, text);
    return 0;
}
