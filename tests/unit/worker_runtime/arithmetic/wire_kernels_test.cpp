// The arithmetic of compressed wires: every instruction set against one element at a time, bit for bit.
#include "worker_runtime/arithmetic/wire_kernels.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/arithmetic/int8_blocks.h"
#include "worker_runtime/arithmetic/int8_elements.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct Candidate {
    std::string name;
    const WireKernels* kernels;
};

std::vector<Candidate> candidates() {
    std::vector<Candidate> found{{"scalar", &wire_scalar}};
#if defined(__x86_64__)
    if (supports(InstructionSet::avx2)) found.push_back({"avx2", &wire_avx2});
    if (supports(InstructionSet::avx512)) found.push_back({"avx512", &wire_avx512});
#endif
    return found;
}

/// Around each width of vectors, and some of several vectors with a rest.
constexpr std::size_t counts[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 300, 511, 512, 1021};
constexpr std::size_t misalignments[] = {0, 1, 3};

/// Elements at a chosen distance from alignment, between guards that nobody may touch.
template <class T>
class Guarded {
  public:
    Guarded(const std::vector<T>& content, std::size_t misalignment)
        : memory_((content.size() + misalignment) * sizeof(T) + 2 * guard, std::byte{0xa5}),
          begin_(guard + misalignment * sizeof(T)),
          count_(content.size()) {
        if (count_ > 0) std::memcpy(data(), content.data(), count_ * sizeof(T));
    }
    T* data() { return reinterpret_cast<T*>(memory_.data() + begin_); }
    /// Nothing where the guards are whole and the elements are `expected`, bit for bit.
    [[nodiscard]] std::string fault(const std::vector<T>& expected) const {
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            if ((i < begin_ || i >= begin_ + count_ * sizeof(T)) && memory_[i] != std::byte{0xa5}) {
                return "wrote beyond its ends";
            }
        }
        for (std::size_t i = 0; i < count_; ++i) {
            if (std::memcmp(memory_.data() + begin_ + i * sizeof(T), &expected[i], sizeof(T)) != 0) {
                return cat("element ", i, " is wrong");
            }
        }
        return {};
    }

  private:
    static constexpr std::size_t guard = 64;
    std::vector<std::byte> memory_;
    std::size_t begin_;
    std::size_t count_;
};

/// Any bits, and every fourth a number where something happens: ties, the limits of f16 and f32, NaNs of all kinds.
std::vector<float> any_floats(std::size_t count, std::mt19937& random) {
    const std::uint32_t special[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001,
                                     0x7f800001, 0xffbfffff, 0x7fffffff, 0x00000001, 0x807fffff, 0x477fefff,
                                     0x477ff000, 0xc77ff001, 0x38800000, 0xb87fffff, 0x33000000, 0x33000001,
                                     0x3f808000, 0x3f818000, 0x7f7fffff};
    std::vector<float> values(count);
    for (auto& value : values) {
        const auto bits = static_cast<std::uint32_t>(random());
        value = std::bit_cast<float>(bits % 4 == 0 ? special[bits / 4 % std::size(special)] : bits);
    }
    return values;
}

template <class From, class To, class Kernel, class Element>
void check_conversion(const std::vector<From>& values, Kernel kernel, Element element) {
    std::vector<To> expected;
    for (const auto value : values) expected.push_back(element(value));
    for (const auto& candidate : candidates()) {
        for (const std::size_t misalignment : misalignments) {
            Guarded<From> from(values, misalignment);
            Guarded<To> to(std::vector<To>(values.size()), (misalignment + 2) % 5);
            kernel (*candidate.kernels)(from.data(), to.data(), values.size());
            INFO(candidate.name << ": " << values.size() << " misaligned by " << misalignment);
            REQUIRE(to.fault(expected) == "");
        }
    }
}

/// What quantise() should give, an element at a time.
struct Block {
    float scale;
    std::vector<float> lost;
    std::vector<std::int8_t> codes;
};

Block expected_block(const std::vector<float>& values, float factor, std::vector<float> sums) {
    float largest = 0;
    bool finite = true;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const float product = values[i] * factor;
        sums[i] = product + sums[i];
        finite = finite && std::isfinite(sums[i]);
        largest = std::max(largest, std::abs(sums[i]));
    }
    Block block{.scale = 0, .lost = sums, .codes = std::vector<std::int8_t>(sums.size())};
    if (finite && largest < int8_tiny) return block;
    block.scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto code = finite ? int8_code(sums[i], 127 / largest) : (sums[i] != 0 ? 1 : 0);
        const float sent = block.scale * static_cast<float>(code);
        block.codes[i] = static_cast<std::int8_t>(code);
        block.lost[i] = finite ? sums[i] - sent : 0;
    }
    return block;
}

void check_block(const std::vector<float>& values, float factor, const std::vector<float>& lost) {
    const auto expected = expected_block(values, factor, lost);
    for (const auto& candidate : candidates()) {
        for (const std::size_t misalignment : misalignments) {
            Guarded<float> from(values, misalignment);
            Guarded<float> to(lost, (misalignment + 2) % 5);
            Guarded<std::int8_t> codes(std::vector<std::int8_t>(values.size(), 9), misalignment);
            const float scale =
                candidate.kernels->quantise(from.data(), factor, values.size(), to.data(), codes.data());
            INFO(candidate.name << ": " << values.size() << " misaligned by " << misalignment);
            REQUIRE(std::bit_cast<std::uint32_t>(scale) == std::bit_cast<std::uint32_t>(expected.scale));
            REQUIRE(from.fault(values) == "");
            REQUIRE(to.fault(expected.lost) == "");
            REQUIRE(codes.fault(expected.codes) == "");
        }
    }
}

/// Every code, -128 included, which nobody sends but a peer of another version.
std::vector<std::int8_t> codes_of(std::size_t count) {
    std::vector<std::int8_t> codes(count);
    for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::int8_t>(i * 5 % 256);
    return codes;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
const float factors[] = {0.01f, 1.0f, 0.0f, 1e-42f, 3e38f, infinity, std::numeric_limits<float>::quiet_NaN()};

}  // namespace

TEST_CASE("numbers become 16-bit ones as one element does, NaNs of every kind too") {
    std::mt19937 random(11);
    for (const std::size_t count : counts) {
        for (int turn = 0; turn < 20; ++turn) {
            const auto values = any_floats(count, random);
            check_conversion<float, std::uint16_t>(
                values, [](const WireKernels& k) { return k.narrow_bf16; }, [](float x) { return bf16_of_f32(x); });
            check_conversion<float, std::uint16_t>(
                values, [](const WireKernels& k) { return k.narrow_f16; }, [](float x) { return f16_of_f32(x); });
        }
    }
}

TEST_CASE("every 16-bit number becomes what one element does") {
    std::vector<std::uint16_t> all(65536 + 5);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    check_conversion<std::uint16_t, float>(
        all, [](const WireKernels& k) { return k.widen_bf16; }, [](std::uint16_t x) { return f32_of_bf16(x); });
    check_conversion<std::uint16_t, float>(
        all, [](const WireKernels& k) { return k.widen_f16; }, [](std::uint16_t x) { return f32_of_f16(x); });
    for (const std::size_t count : counts) {
        all.resize(count);
        check_conversion<std::uint16_t, float>(
            all, [](const WireKernels& k) { return k.widen_bf16; }, [](std::uint16_t x) { return f32_of_bf16(x); });
        check_conversion<std::uint16_t, float>(
            all, [](const WireKernels& k) { return k.widen_f16; }, [](std::uint16_t x) { return f32_of_f16(x); });
    }
}

TEST_CASE("blocks become codes as one element at a time does: ordinary, empty of numbers, and full of odd ones") {
    std::mt19937 random(12);
    std::normal_distribution<float> normal;
    for (const std::size_t count : counts) {
        // The third is a share as an average has it; two numbers of the largest size overflow together.
        for (const float factor : {1.0f, 1.0f / 3}) {
            for (const float size : {0.0f, 1e-42f, 1e-36f, 1e-30f, 1e-20f, 1.0f, 1e30f, 1e38f}) {
                std::vector<float> values(count), lost(count);
                for (auto& value : values) value = size * normal(random);
                for (auto& value : lost) value = 0.004f * size * normal(random);
                check_block(values, factor, lost);
                if (count == 0) continue;
                const auto at = random() % count;
                for (const float odd : {infinity, -infinity, std::nanf(""), 3.4e38f, -0.0f, 1e-45f}) {
                    auto with_odd = values;
                    with_odd[at] = odd;
                    check_block(with_odd, factor, lost);
                    check_block(values, factor, with_odd);
                }
                lost[at] = values[at] * -factor;  // zero, in a block that is not finite as well
                check_block(values, factor, lost);
            }
        }
    }
}

TEST_CASE("codes become numbers as one element does, and zero whatever the scale is") {
    for (const std::size_t count : counts) {
        const auto codes = codes_of(count);
        for (const float factor : factors) {
            std::vector<float> expected;
            for (const auto code : codes) expected.push_back(int8_value(factor, code));
            if (count > 0) REQUIRE(expected[0] == 0);  // of the code 0
            for (const auto& candidate : candidates()) {
                for (const std::size_t misalignment : misalignments) {
                    Guarded<std::int8_t> from(codes, misalignment);
                    Guarded<float> to(std::vector<float>(count), (misalignment + 2) % 5);
                    candidate.kernels->dequantise(from.data(), count, factor, to.data());
                    INFO(candidate.name << ": " << count << " times " << factor);
                    REQUIRE(to.fault(expected) == "");
                }
            }
        }
    }
}

TEST_CASE("codes are added as one element is; nothing is added for zero, whatever the factor is") {
    std::mt19937 random(13);
    std::normal_distribution<float> normal;
    for (const std::size_t count : counts) {
        const auto codes = codes_of(count);
        for (const float factor : factors) {
            std::vector<float> sums(count);
            for (auto& sum : sums) sum = normal(random);
            auto expected = sums;
            for (std::size_t i = 0; i < count; ++i) {
                const float value = int8_value(factor, codes[i]);
                expected[i] = expected[i] + value;
            }
            for (const auto& candidate : candidates()) {
                for (const std::size_t misalignment : misalignments) {
                    Guarded<std::int8_t> from(codes, misalignment);
                    Guarded<float> to(sums, (misalignment + 2) % 5);
                    candidate.kernels->add_scaled(to.data(), from.data(), count, factor);
                    INFO(candidate.name << ": " << count << " times " << factor);
                    REQUIRE(to.fault(expected) == "");
                }
            }
        }
    }
}

TEST_CASE("wires use the best instruction set, and MUSTER_SIMD a lower one") {
    // As for reductions: the environment is tried in processes of their own, by the names below (see CMakeLists.txt).
    const char* wish = std::getenv("MUSTER_SIMD");
    for (const auto& candidate : candidates()) {
        if (candidate.name == (wish ? wish : candidates().back().name)) CHECK(&wire_kernels() == candidate.kernels);
    }
}
