#include "rendezvous/base/hmac_sha256.h"

#include <string.h>
#include <sys/random.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "rendezvous/base/check.h"

namespace muster {

namespace {

constexpr std::size_t block_bytes = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;

/// FIPS 180-4, 6.2.2. `block` has 64 bytes.
void compress(State& state, const char* block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t t = 0; t < 16; ++t) {
        for (std::size_t i = 0; i < 4; ++i) w[t] = w[t] << 8 | static_cast<unsigned char>(block[4 * t + i]);
    }
    for (std::size_t t = 16; t < 64; ++t) {
        const auto s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        const auto s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
        const auto choice = (e & f) ^ (~e & g);
        const auto majority = (a & b) ^ (a & c) ^ (b & c);
        const auto one =
            h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + round_constants[t] + w[t];
        const auto two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const State after{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += after[i];
}

/// Overwrites what may hold a key: freed memory keeps its content.
void wipe(std::string& text) {
    ::explicit_bzero(text.data(), text.size());
}

std::string sha256(std::string text) {
    State state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::uint64_t bits = text.size() * 8;
    text += '\x80';
    text.append((2 * block_bytes - 8 - text.size() % block_bytes) % block_bytes, '\0');
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift & 0xff);
    for (std::size_t at = 0; at < text.size(); at += block_bytes) compress(state, text.data() + at);
    wipe(text);
    std::string digest;
    for (const auto word : state) {
        for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift & 0xff);
    }
    return digest;
}

/// A copy with room for `more` bytes and SHA-256's padding, so that it is never moved.
std::string padded(std::string_view text, std::size_t more = 0) {
    std::string out;
    out.reserve(text.size() + more + 2 * block_bytes);
    return out.append(text);
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
    std::string block;
    block.reserve(2 * block_bytes);  // never moved: a copy would stay behind
    block = key.size() > block_bytes ? sha256(padded(key)) : key;
    block.resize(block_bytes, '\0');
    const auto masked = [&block](char mask, std::string_view behind) {
        std::string out = padded(block, behind.size());
        for (char& byte : out) byte = static_cast<char>(byte ^ mask);
        return out.append(behind);
    };
    auto digest = sha256(masked(0x5c, sha256(masked(0x36, text))));
    wipe(block);
    return digest;
}

bool same_digest(std::string_view one, std::string_view other) {
    if (one.size() != other.size() || one.empty()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
        difference |= static_cast<unsigned>(static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]));
    return difference == 0;
}

std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    const auto given = ::getrandom(bytes.data(), bytes.size(), 0);
    MUSTER_CHECK(given == static_cast<ssize_t>(count), errno, count);  // whole up to 256 bytes
    return bytes;
}

std::string hexadecimal(std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += {digits[byte >> 4U], digits[byte & 15U]};
    }
    return text;
}

}  // namespace muster
