#include "worker_runtime/data/sampler_state.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

using nlohmann::json;

constexpr std::uint64_t version = 1;
/// A state has about 150 bytes. A longer text is not a state, and could be nested deeply.
constexpr std::size_t text_bytes_max = 1024;
constexpr std::uint64_t epoch_max = std::uint64_t{1} << 62;
constexpr std::array<std::string_view, 3> order_names{"torch", "computed", "sequential"};
constexpr std::array<std::string_view, 7> field_names{"version", "samples", "seed",      "order",
                                                      "epoch",   "cursor",  "batch_size"};

Error damaged(const std::string& what) {
    return {Errc::bad_frame, cat("the sampler's state: ", what)};
}

/// Reads an integer from `least` to `most`.
Result<std::uint64_t> number(const json& object, const char* field, std::uint64_t least, std::uint64_t most) {
    const auto found = object.find(field);
    if (found == object.end()) return damaged(cat("field '", field, "' is missing"));
    if (!found->is_number_unsigned()) {
        return damaged(
            cat("field '", field, "' is ", found->dump().substr(0, 40), ", not a whole number from ", least));
    }
    const auto value = found->get<std::uint64_t>();
    if (value < least || value > most) {
        return damaged(cat("field '", field, "' is ", value, "; it must be ", least, " to ", most));
    }
    return value;
}

Result<SampleOrder> order_in(const json& object) {
    const auto found = object.find("order");
    if (found == object.end()) return damaged("field 'order' is missing");
    for (std::size_t i = 0; i < order_names.size(); ++i) {
        if (*found == order_names[i]) return static_cast<SampleOrder>(i);
    }
    return damaged(cat("field 'order' is ", found->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40),
                       "; known: torch, computed, sequential"));
}

}  // namespace

std::string_view name_of(SampleOrder order) {
    return order_names[static_cast<std::size_t>(order)];
}

std::string encode_state(const SamplerState& state) {
    return cat("{\"version\":", version, ",\"samples\":", state.samples, ",\"seed\":", state.seed, ",\"order\":\"",
               name_of(state.order), "\",\"epoch\":", state.epoch, ",\"cursor\":", state.cursor,
               ",\"batch_size\":", state.batch_size, "}");
}

Result<SamplerState> decode_state(std::string_view text) {
    if (text.size() > text_bytes_max) return damaged(cat(text.size(), " bytes; at most ", text_bytes_max));
    const auto object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return damaged("not a JSON object");
    const auto read_version = MUSTER_TRY(number(object, "version", 1, std::numeric_limits<std::uint64_t>::max()));
    if (read_version != version) {
        return damaged(cat("field 'version' is ", read_version, "; this program supports version ", version));
    }
    for (const auto& item : object.items()) {
        if (std::find(field_names.begin(), field_names.end(), item.key()) == field_names.end()) {
            return damaged(cat("field '", item.key().substr(0, 40), "' is unknown"));
        }
    }
    const auto samples = MUSTER_TRY(number(object, "samples", 1, ElasticSamplerOptions::sample_count_max));
    const auto seed = MUSTER_TRY(number(object, "seed", 0, std::numeric_limits<std::uint64_t>::max()));
    const auto order = MUSTER_TRY(order_in(object));
    const auto epoch = MUSTER_TRY(number(object, "epoch", 0, epoch_max));
    const auto cursor = MUSTER_TRY(number(object, "cursor", 0, samples - 1));
    const auto batch_size = MUSTER_TRY(number(object, "batch_size", 1, ElasticSamplerOptions::batch_size_max));
    return SamplerState{
        .samples = samples, .seed = seed, .order = order, .epoch = epoch, .cursor = cursor, .batch_size = batch_size};
}

}  // namespace muster::runtime
