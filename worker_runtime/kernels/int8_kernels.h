// Gradients as 8-bit integers with one scale per block (wires/int8_exchange.h), bit for bit equal to the host's.
#pragma once

#include <bit>

#include "worker_runtime/arithmetic/int8_blocks.h"
#include "worker_runtime/arithmetic/int8_elements.h"
#include "worker_runtime/kernels/kernel.h"

namespace muster::kernels {

/// The layout of one piece on the wire: number of samples, one scale per block, the codes.
struct Int8Pieces {
    std::byte* data;
    std::uint64_t elements;  ///< Elements of each piece; a multiple of a block.
    std::uint64_t bytes;     ///< Bytes of each piece.

    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::uint64_t blocks() const { return elements / runtime::int8_block; }
    [[nodiscard]] MUSTER_HOST_AND_DEVICE float* samples(std::uint64_t piece) const {
        return reinterpret_cast<float*>(data + piece * bytes);
    }
    [[nodiscard]] MUSTER_HOST_AND_DEVICE float* scales(std::uint64_t piece) const { return samples(piece) + 1; }
    [[nodiscard]] MUSTER_HOST_AND_DEVICE std::int8_t* codes(std::uint64_t piece) const {
        return reinterpret_cast<std::int8_t*>(scales(piece) + blocks());
    }
};

/// A GPU block works on one block of numbers; each thread on `own` of them.
struct Int8Form : Halving {
    static constexpr std::uint32_t own = runtime::int8_block / threads;
    struct Shared {
        std::int32_t bits[threads];         ///< the largest magnitude that a thread has seen
        float values[runtime::int8_block];  ///< the numbers to send
    };
};

/// Phase 1: stores this thread's largest magnitude of shared.values.
MUSTER_HOST_AND_DEVICE inline void look_at_own(std::uint32_t thread, Int8Form::Shared& shared) {
    std::int32_t largest = 0;
    for (std::uint32_t k = 0; k < Int8Form::own; ++k) {
        largest = Larger()(largest, runtime::magnitude_bits(shared.values[thread + k * threads]));
    }
    shared.bits[thread] = largest;
}

/// Last phase: quantise() of arithmetic/int8_blocks.h for this thread's numbers, of which `count` exist.
MUSTER_HOST_AND_DEVICE inline void quantise_own(std::uint32_t thread, const Int8Form::Shared& shared,
                                                std::uint64_t count, float* scale, std::int8_t* codes, float* lost) {
    const std::int32_t bits = shared.bits[0];
    const float largest = std::bit_cast<float>(bits);
    const bool finite = bits < runtime::infinity_bits;
    const bool sent = finite && largest >= runtime::int8_tiny;
    const float unit = finite ? (sent ? largest / 127 : 0) : std::bit_cast<float>(std::uint32_t{0x7fc00000});
    const float inverse = sent ? 127 / largest : 0;
    if (thread == 0) *scale = unit;
    for (std::uint32_t k = 0; k < Int8Form::own; ++k) {
        const std::uint32_t i = thread + k * threads;
        if (i >= count) {
            codes[i] = 0;
            continue;
        }
        const float value = shared.values[i];
        const std::int32_t code = sent ? runtime::int8_code(value, inverse) : (finite || value == 0 ? 0 : 1);
        codes[i] = static_cast<std::int8_t>(code);
        lost[i] = sent ? value - unit * static_cast<float>(code) : (finite ? value : 0.0f);
    }
}

/// Adds the residuals to a bucket's gradients and quantises them into the pieces for the ranks.
struct Int8Encode {
    using Form = Int8Form;
    float* gradients;
    float* lost;
    std::uint64_t count;
    Int8Pieces pieces;
    std::uint32_t world;
    float samples;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return world * pieces.blocks(); }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    Int8Form::Shared& shared) const {
        const std::uint64_t begin = item * runtime::int8_block;
        // A rank without samples sends zeroes and keeps its residuals for a step in which it has some.
        const std::uint64_t there = samples > 0 && begin < count ? count - begin : 0;
        if (phase == 0) {
            for (std::uint32_t i = thread; i < runtime::int8_block; i += threads) {
                if (i < there) gradients[begin + i] += lost[begin + i];
                shared.values[i] = i < there ? gradients[begin + i] : 0.0f;
            }
            look_at_own(thread, shared);
        } else if (phase <= halvings) {
            halve(shared.bits, phase - 1, thread, Larger());
        } else {
            const std::uint64_t piece = item / pieces.blocks();
            const std::uint64_t block = item % pieces.blocks();
            if (thread == 0 && block == 0) *pieces.samples(piece) = samples;
            quantise_own(thread, shared, there, pieces.scales(piece) + block,
                         pieces.codes(piece) + block * runtime::int8_block, lost + begin);
        }
    }
    void memory(auto&& visit) {
        visit(gradients, count);
        visit(lost, count);
        visit(pieces.data, world * pieces.bytes);
    }
};

/// Adds all ranks' contributions to this rank's piece in f32, in rank order, weighted by samples. The result is the
/// average plus this piece's residuals, quantised again.
struct Int8Average {
    using Form = Int8Form;
    Int8Pieces incoming;
    Int8Pieces outgoing;
    float* lost;
    std::uint32_t world;
    std::uint32_t rank;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return incoming.blocks(); }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    Int8Form::Shared& shared) const {
        const std::uint64_t begin = item * runtime::int8_block;
        if (phase == 0) {
            float samples = 0;
            for (std::uint32_t r = 0; r < world; ++r) samples += *incoming.samples(r);
            const float share = 1 / samples;
            for (std::uint32_t i = thread; i < runtime::int8_block; i += threads) {
                float sum = 0;
                for (std::uint32_t r = 0; r < world; ++r) {
                    const float factor = *incoming.samples(r) * incoming.scales(r)[item];
                    sum += runtime::int8_value(factor, incoming.codes(r)[begin + i]);
                }
                shared.values[i] = sum * share + lost[begin + i];
            }
            if (thread == 0 && item == 0) *outgoing.samples(rank) = samples;
            look_at_own(thread, shared);
        } else if (phase <= halvings) {
            halve(shared.bits, phase - 1, thread, Larger());
        } else {
            quantise_own(thread, shared, runtime::int8_block, outgoing.scales(rank) + item,
                         outgoing.codes(rank) + begin, lost + begin);
        }
    }
    void memory(auto&& visit) {
        visit(incoming.data, world * incoming.bytes);
        visit(outgoing.data, world * outgoing.bytes);
        visit(lost, incoming.elements);
    }
};

/// Converts the averages of all pieces back to gradients.
struct Int8Decode {
    using Form = Elementwise;
    Int8Pieces pieces;
    float* gradients;
    std::uint64_t count;
    std::uint32_t world;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        const std::uint64_t piece = i / pieces.elements;
        const std::uint64_t at = i % pieces.elements;
        gradients[i] = runtime::int8_value(pieces.scales(piece)[at / runtime::int8_block], pieces.codes(piece)[at]);
    }
    void memory(auto&& visit) {
        visit(pieces.data, world * pieces.bytes);
        visit(gradients, count);
    }
};

}  // namespace muster::kernels
