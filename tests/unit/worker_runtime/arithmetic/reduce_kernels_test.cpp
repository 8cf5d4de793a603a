// Every kernel against the serial reference, bit for bit, and therefore against each other.
#include "worker_runtime/arithmetic/reduce_kernels.h"

#include <random>
#include <string>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/arithmetic/reduce_reference.h"
#include "worker_runtime/arithmetic/reduce_instruction_sets.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::Bytes;

namespace {

struct Candidate {
    std::string name;
    void (*reduce)(const Reduction&);
};

std::vector<Candidate> candidates() {
    std::vector<Candidate> found{{"scalar", reduce_scalar}};
#if defined(__x86_64__)
    if (supports(InstructionSet::avx2)) found.push_back({"avx2", reduce_avx2});
    if (supports(InstructionSet::avx512)) found.push_back({"avx512", reduce_avx512});
#endif
    return found;
}

/// Any bits, which for 16-bit types meets every class of number often; every third f32 and f64 is of ordinary size, so
/// that sums round, and every seventh element is special.
Bytes random_elements(DataType type, std::size_t count, std::mt19937_64& random) {
    Bytes bytes(count * size_of(type));
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::normal_distribution<double> ordinary;
    const double specials[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, NAN, 1e-310, 3e-39, 1.0};
    for (std::size_t i = 0; i < count; ++i) {
        const bool special = random() % 7 == 0;
        if (!special && random() % 3 != 0) continue;
        const double value = special ? specials[random() % std::size(specials)] : ordinary(random);
        if (type == DataType::f64) test::write(bytes, i, value);
        if (type == DataType::f32) test::write(bytes, i, static_cast<float>(value));
        if (type == DataType::f16) test::write(bytes, i, test::binary16.encode(static_cast<float>(value)));
        if (type == DataType::bf16) test::write(bytes, i, test::bfloat16.encode(static_cast<float>(value)));
    }
    return bytes;
}

/// An array at a chosen distance from alignment, between guards that nobody may touch.
class GuardedArray {
  public:
    GuardedArray(const Bytes& content, std::size_t offset) : offset_(guard + offset), size_(content.size()) {
        memory_.assign(offset_ + size_ + guard, 0xa5);
        if (size_ > 0) std::memcpy(data(), content.data(), size_);
    }
    void* data() { return memory_.data() + offset_; }
    [[nodiscard]] Bytes content() const {
        const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(offset_);
        return {begin, begin + static_cast<std::ptrdiff_t>(size_)};
    }
    [[nodiscard]] bool guards_whole() const {
        for (std::size_t i = 0; i < memory_.size(); ++i)
            if ((i < offset_ || i >= offset_ + size_) && memory_[i] != 0xa5) return false;
        return true;
    }

  private:
    static constexpr std::size_t guard = 64;
    std::size_t offset_;
    std::size_t size_;
    Bytes memory_;
};

struct Case {
    DataType type;
    ReduceOp reduce;
    std::vector<Bytes> inputs;
    std::vector<double> weights;
    std::size_t misalignment;  ///< of the first array, in elements; each further one has one more
    bool in_place;

    [[nodiscard]] std::string text() const {
        return cat(name(type), " ", name(reduce), weights.empty() ? "" : " weighted", " of ", inputs.size(), " x ",
                   inputs[0].size() / size_of(type), " misaligned by ", misalignment,
                   in_place ? " in place" : " to one output");
    }
};

/// What is wrong with `candidate` in this case, or nothing.
std::string fault(const Candidate& candidate, const Case& the_case, const Bytes& expected) {
    std::vector<GuardedArray> arrays;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    const auto offset = [&](std::size_t i) { return (the_case.misalignment + i) % 8 * size_of(the_case.type); };
    arrays.reserve(the_case.inputs.size() + 1);
    for (std::size_t i = 0; i < the_case.inputs.size(); ++i) {
        arrays.emplace_back(the_case.inputs[i], the_case.misalignment == 0 ? 0 : offset(i));
        inputs.push_back(arrays.back().data());
        if (the_case.in_place) outputs.push_back(arrays.back().data());
    }
    if (!the_case.in_place) {
        arrays.emplace_back(Bytes(expected.size(), 0x77), offset(3));
        outputs.push_back(arrays.back().data());
    }
    candidate.reduce({.type = the_case.type,
                      .reduce = the_case.reduce,
                      .inputs = inputs.data(),
                      .input_count = static_cast<int>(inputs.size()),
                      .outputs = outputs.data(),
                      .output_count = static_cast<int>(outputs.size()),
                      .count = expected.size() / size_of(the_case.type),
                      .weights = the_case.weights.empty() ? nullptr : the_case.weights.data()});
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const auto where = cat(candidate.name, ": ", the_case.text(), ", array ", i);
        if (!arrays[i].guards_whole()) return cat(where, ": wrote beyond its ends");
        const bool is_output = the_case.in_place || i == the_case.inputs.size();
        if (arrays[i].content() == (is_output ? expected : the_case.inputs[i])) continue;
        const auto found = arrays[i].content();
        std::size_t first = 0;
        while (found[first] == (is_output ? expected : the_case.inputs[i])[first]) ++first;
        return cat(where, ": element ", first / size_of(the_case.type), " is wrong");
    }
    return {};
}

std::string first_fault(const Case& the_case) {
    const auto expected = test::reference(the_case.type, the_case.reduce, the_case.inputs, the_case.weights);
    for (const auto& candidate : candidates())
        if (auto found = fault(candidate, the_case, expected); !found.empty()) return found;
    return {};
}

}  // namespace

TEST_CASE("every reduction equals the serial one, bit for bit, for each count, alignment and instruction set") {
    std::mt19937_64 random(7);
    for (const auto type : test::all_types) {
        for (const auto reduce : test::all_reductions) {
            if (!test::has(type, reduce)) continue;
            for (int input_count = 1; input_count <= 8; ++input_count) {
                for (const std::size_t count : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 251, 1021, 4095}) {
                    std::vector<Bytes> inputs;
                    for (int i = 0; i < input_count; ++i) inputs.push_back(random_elements(type, count, random));
                    const std::size_t misalignment = random() % 4 == 0 ? 0 : random() % 8;
                    for (const bool in_place : {true, false})
                        REQUIRE(first_fault({type, reduce, inputs, {}, misalignment, in_place}) == "");
                }
            }
        }
    }
}

TEST_CASE("weighted averages and premul_sum multiply before they add, and averages divide once") {
    std::mt19937_64 random(8);
    for (const auto type : {DataType::f32, DataType::f64, DataType::f16, DataType::bf16}) {
        for (std::size_t input_count = 1; input_count <= 8; ++input_count) {
            for (const std::size_t count : {1, 17, 64, 1021}) {
                std::vector<Bytes> inputs;
                std::vector<double> weights, factors;
                for (std::size_t i = 0; i < input_count; ++i) {
                    inputs.push_back(random_elements(type, count, random));
                    weights.push_back(i == 1 ? 0.0 : static_cast<double>(random() % 1000) / 7 + 1);
                    factors.push_back(i == 1 ? -1.0 / 3 : weights.back());
                }
                REQUIRE(first_fault({type, ReduceOp::avg, inputs, weights, random() % 8, true}) == "");
                REQUIRE(first_fault({type, ReduceOp::premul_sum, inputs, factors, random() % 8, true}) == "");
            }
            const std::vector<double> ones(input_count, 1.0);
            std::vector<Bytes> inputs;
            for (std::size_t i = 0; i < input_count; ++i) inputs.push_back(random_elements(type, 251, random));
            CHECK(test::reference(type, ReduceOp::avg, inputs, ones) == test::reference(type, ReduceOp::avg, inputs));
            REQUIRE(first_fault({type, ReduceOp::avg, inputs, ones, 0, true}) == "");
        }
    }
}

TEST_CASE("every f16 and every bf16 survives the way to f32 and back, and each NaN becomes the same one") {
    for (const auto type : {DataType::f16, DataType::bf16}) {
        const auto& format = type == DataType::f16 ? test::binary16 : test::bfloat16;
        Bytes every(65536 * 2), expected(65536 * 2);
        for (std::size_t i = 0; i < 65536; ++i) {
            const auto bits = static_cast<std::uint16_t>(i);
            const bool is_nan = (bits & 0x7fff) > format.infinity();
            test::write(every, i, bits);
            test::write(expected, i, is_nan ? format.nan() : bits);
            if (format.encode(format.decode(bits)) != (is_nan ? format.nan() : bits)) FAIL("the reference at " << i);
        }
        for (const auto& candidate : candidates())
            REQUIRE(fault(candidate, {type, ReduceOp::sum, {every}, {}, 0, true}, expected) == "");
    }
}

TEST_CASE("one NaN among numbers is found wherever it is, and changes no other element") {
    constexpr std::size_t count = 200;
    for (const auto type : {DataType::f32, DataType::f64, DataType::f16, DataType::bf16}) {
        Bytes ones(count * size_of(type));
        for (std::size_t i = 0; i < count; ++i) {
            if (type == DataType::f64) test::write(ones, i, 1.0);
            if (type == DataType::f32) test::write(ones, i, 1.0f);
            if (type == DataType::f16) test::write(ones, i, test::binary16.encode(1));
            if (type == DataType::bf16) test::write(ones, i, test::bfloat16.encode(1));
        }
        for (std::size_t at = 0; at < count; ++at) {
            Bytes with_nan = ones;
            // All bits set: a NaN with a sign and a payload, neither of which stays.
            std::fill_n(with_nan.begin() + static_cast<std::ptrdiff_t>(at * size_of(type)), size_of(type), 0xff);
            REQUIRE(first_fault({type, ReduceOp::sum, {ones, with_nan}, {}, 0, true}) == "");
        }
    }
}

TEST_CASE("sums of every f16 and bf16 with numbers near it round to nearest even") {
    // Halves and quarters of the last place, and the limits: 65520 is the first to become infinite in f16.
    for (const auto type : {DataType::f16, DataType::bf16}) {
        for (const int near : {0x0001, 0x0003, 0x03ff, 0x1000, 0x3c00, 0x7bff, 0x8001, 0x7f7f}) {
            const auto other = static_cast<std::uint16_t>(near);
            Bytes every(65536 * 2), same(65536 * 2), third(65536 * 2);
            for (std::size_t i = 0; i < 65536; ++i) {
                const auto bits = static_cast<std::uint16_t>(i);
                test::write(every, i, bits);
                test::write(same, i, other);
                // A number 9 binary places below: sums of three meet ties and their neighbours.
                test::write(third, i,
                            static_cast<std::uint16_t>(bits & 0x7fff) > 0x2400
                                ? static_cast<std::uint16_t>(bits - 0x2400)
                                : other);
            }
            REQUIRE(first_fault({type, ReduceOp::sum, {every, same}, {}, 0, true}) == "");
            REQUIRE(first_fault({type, ReduceOp::avg, {every, same, third}, {}, 1, true}) == "");
        }
    }
}

TEST_CASE("reduce() uses the best instruction set, and MUSTER_SIMD a lower one") {
    // The choice is made once in a process: what the environment says is tried in processes of their own, by the names
    // below (see CMakeLists.txt).
    const char* wish = std::getenv("MUSTER_SIMD");
    const auto best = candidates().back().name;
    CHECK(instruction_set() == (wish && std::string(wish) != "nonsense" ? wish : best));
    float value = 3;
    const void* input = &value;
    void* output = &value;
    reduce({.type = DataType::f32,
            .reduce = ReduceOp::avg,
            .inputs = &input,
            .input_count = 1,
            .outputs = &output,
            .output_count = 1,
            .count = 1});
    CHECK(value == 3);
}
