#include "worker_runtime/checkpoint/format/crc32c.h"

#include <random>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"

namespace muster::runtime {

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(std::size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(size);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

}  // namespace

TEST_CASE("CRC-32C has the values of RFC 3720 and of everybody else") {
    CHECK(crc32c({}) == 0);
    CHECK(crc32c(bytes_of("123456789")) == 0xE3069283);
    const std::vector<std::byte> zeros(32), ones(32, std::byte{0xFF});
    CHECK(crc32c(zeros) == 0x8A9136AA);
    CHECK(crc32c(ones) == 0x62A8AB43);
}

TEST_CASE("the fast CRC-32C equals the portable one at every size around its parts") {
    const auto bytes = random_bytes(200'000, 7);
    for (const std::size_t size : {0, 1, 7, 8, 9, 49151, 49152, 49153, 98303, 98304, 100'000, 199'990}) {
        for (const std::size_t from : {0, 1, 5}) {
            const auto part = std::span(bytes).subspan(from, size);
            CHECK(crc32c(part, 17) == detail::crc32c_portable(part, 17));
        }
    }
}

TEST_CASE("checksums of two parts give that of both") {
    const auto bytes = random_bytes(70'000, 11);
    for (const std::size_t cut : {0, 1, 4096, 33'333, 69'999, 70'000}) {
        const auto a = std::span(bytes).first(cut), b = std::span(bytes).subspan(cut);
        CHECK(crc32c_combine(crc32c(a), crc32c(b), b.size()) == crc32c(bytes));
        CHECK(crc32c(b, crc32c(a)) == crc32c(bytes));
    }
    // Far more zero bytes than fit in memory: one at a time and all at once are the same.
    const auto a = crc32c(bytes);
    auto doubled = crc32c(std::vector<std::byte>(1 << 10));
    std::uint64_t size = 1 << 10;
    for (; size < (std::uint64_t{1} << 40); size *= 2) doubled = crc32c_combine(doubled, doubled, size);
    const auto once = crc32c_combine(a, doubled, size);
    CHECK(once != a);
    CHECK(crc32c_combine(crc32c_combine(a, crc32c_combine(0, doubled, size), size), 0, 0) == once);
}

}  // namespace muster::runtime
