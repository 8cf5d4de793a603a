#include "tests/unit/worker_runtime/reducer/reducer_story.h"

#include <bit>

#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/core/registration.h"

namespace muster::test {

namespace {

std::uint64_t scrambled(std::uint64_t x) {
    // SplitMix64: Steele, Lea, Flood 2014.
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t element, T value) {
    std::memcpy(bytes.data() + element * sizeof value, &value, sizeof value);
}

}  // namespace

OwnedParameters::OwnedParameters(std::vector<Parameter> parameters, std::uint64_t seed)
    : parameters_(std::move(parameters)), memory_(parameters_.size()) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        memory_[i] = made_up(parameters_[i].type, runtime::element_count(parameters_[i]), seed + i);
        parameters_[i].data = memory_[i].data();
    }
}

std::vector<std::byte> made_up(DataType type, std::size_t count, std::uint64_t seed) {
    std::vector<std::byte> bytes(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
        const auto random = static_cast<std::int64_t>(scrambled(seed * 1000003 + i) >> 11);
        const double value = static_cast<double>(random) * 0x1p-52 - 1;
        switch (type) {
            case DataType::f32: put(bytes, i, static_cast<float>(value)); break;
            case DataType::f64: put(bytes, i, value); break;
            case DataType::f16: put(bytes, i, runtime::f16_of_f32(static_cast<float>(value))); break;
            case DataType::bf16: put(bytes, i, runtime::bf16_of_f32(static_cast<float>(value))); break;
            default: break;
        }
    }
    return bytes;
}

std::uint64_t seed_of(std::uint64_t step, int rank, std::size_t parameter) {
    return scrambled((step << 32) + (static_cast<std::uint64_t>(rank) << 24) + parameter) >> 20;
}

std::vector<std::byte> average(DataType type, const std::vector<std::vector<std::byte>>& arrays,
                               const std::vector<float>& weights) {
    if (arrays.size() == 1) return arrays[0];
    std::vector<std::byte> result(arrays[0].size());
    std::vector<const void*> inputs;
    for (const auto& array : arrays) inputs.push_back(array.data());
    void* const output = result.data();
    const std::vector<double> wide(weights.begin(), weights.end());
    runtime::reduce({.type = type,
                     .reduce = ReduceOp::avg,
                     .inputs = inputs.data(),
                     .input_count = static_cast<int>(inputs.size()),
                     .outputs = &output,
                     .output_count = 1,
                     .count = result.size() / size_of(type),
                     .weights = wide.data()});
    return result;
}

void write(const Buffer& gradient, const std::vector<std::byte>& values) {
    if (!values.empty()) std::memcpy(gradient.data, values.data(), values.size());
}

void accumulate(const Buffer& gradient, const std::vector<std::byte>& values) {
    std::vector<std::byte> sum(values.size());
    const void* const inputs[] = {gradient.data, values.data()};
    void* const output = sum.data();
    runtime::reduce({.type = gradient.type,
                     .reduce = ReduceOp::sum,
                     .inputs = inputs,
                     .input_count = 2,
                     .outputs = &output,
                     .output_count = 1,
                     .count = gradient.count});
    write(gradient, sum);
}

std::vector<Parameter> f32_parameters(const std::vector<std::int64_t>& sizes) {
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        parameters.push_back({.name = "p" + std::to_string(i), .shape = {sizes[i]}, .type = DataType::f32});
    }
    return parameters;
}

std::vector<Parameter> eight() {
    return f32_parameters({64, 64, 64, 64, 64, 64, 64, 64});
}

ReducerOptions small_buckets() {
    constexpr double two_lines = 512.0 / (1 << 20);
    return {.bucket_cap_mb = two_lines, .first_bucket_mb = two_lines, .last_bucket_mb = two_lines};
}

}  // namespace muster::test
