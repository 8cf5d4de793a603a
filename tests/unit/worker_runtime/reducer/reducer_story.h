// Training without a model: gradients are made up from (step, rank, parameter), so that what the reducer must give can
// be computed beside it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "muster/gradient_reducer.h"
#include "tests/support/thread_group.h"

namespace muster::test {

/// Parameters with memory of their own, filled with `seed`'s values.
class OwnedParameters {
  public:
    OwnedParameters(std::vector<Parameter> parameters, std::uint64_t seed);
    [[nodiscard]] const std::vector<Parameter>& list() const { return parameters_; }
    [[nodiscard]] const std::vector<std::byte>& bytes(std::size_t parameter) const { return memory_[parameter]; }

  private:
    std::vector<Parameter> parameters_;
    std::vector<std::vector<std::byte>> memory_;
};

/// Elements of `type` between -1 and 1.
std::vector<std::byte> made_up(DataType type, std::size_t count, std::uint64_t seed);

/// Which gradient it is: the seed of its values.
std::uint64_t seed_of(std::uint64_t step, int rank, std::size_t parameter);

/// The average of the ranks' arrays, as promised by ReduceOp::avg; of one rank alone they stay as they are.
std::vector<std::byte> average(DataType type, const std::vector<std::vector<std::byte>>& arrays,
                               const std::vector<float>& weights);

/// Adds `values` to the gradient in its own type, or writes them.
void accumulate(const Buffer& gradient, const std::vector<std::byte>& values);
void write(const Buffer& gradient, const std::vector<std::byte>& values);

inline bool holds(const Buffer& gradient, const std::vector<std::byte>& values) {
    return gradient.size_bytes() == values.size() &&
           (values.empty() || std::memcmp(gradient.data, values.data(), values.size()) == 0);
}

/// f32 parameters of so many elements, named "p0", "p1"...
std::vector<Parameter> f32_parameters(const std::vector<std::int64_t>& sizes);

/// Eight of them, and options that put two, of 256 bytes each, into a bucket: 7 6 | 5 4 | 3 2 | 1 0.
std::vector<Parameter> eight();
ReducerOptions small_buckets();

/// What the error of a result says; nothing where it has none.
template <class T>
std::string complaint(const Result<T>& result) {
    return result ? std::string() : result.error().context;
}

}  // namespace muster::test
