// writer DIRECTORY WORLD STEP: saves one checkpoint of tensors whose values checkpoint_test.py can compute.
//
// Element i of the t-th tensor is (7 i + t) mod 120, of booleans the lowest bit of that.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "muster/checkpoint.h"
#include "rendezvous/base/check.h"
#include "tests/integration/checkpoint/shared_board.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/ranks.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

using namespace muster;

namespace {

struct Tensor {
    const char* name;
    TensorType type;
    std::vector<std::int64_t> shape;
    Placement placement;
};

const std::vector<Tensor>& tensors() {
    static const std::vector<Tensor> all = {
        {"net.weight", TensorType::f32, {600, 500}, Placement::replicated},  // rank 0 writes it, whole
        {"net.bias", TensorType::bf16, {33}, Placement::replicated},
        {"half", TensorType::f16, {5, 7}, Placement::replicated},
        {"steps", TensorType::i64, {}, Placement::replicated},
        {"mask", TensorType::boolean, {3, 5}, Placement::replicated},
        {"bytes", TensorType::u8, {4099}, Placement::replicated},
        {"empty", TensorType::f32, {0, 4}, Placement::replicated},
        {"momentum", TensorType::f64, {17, 59}, Placement::sharded},
        {"näme \"quoted\"", TensorType::i16, {1003}, Placement::sharded},
    };
    return all;
}

std::uint16_t bfloat16(unsigned value) {
    const auto wide = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &wide, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
}

/// Of a small integer.
std::uint16_t float16(unsigned value) {
    if (value == 0) return 0;
    unsigned exponent = 0;
    while (value >> (exponent + 1) != 0) ++exponent;
    return static_cast<std::uint16_t>((exponent + 15) << 10 | (value << (10 - exponent) & 0x3ff));
}

template <class T>
void put(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

void put_element(std::byte* to, TensorType type, unsigned value) {
    switch (type) {
        case TensorType::f32: return put(to, static_cast<float>(value));
        case TensorType::f64: return put(to, static_cast<double>(value));
        case TensorType::bf16: return put(to, bfloat16(value));
        case TensorType::f16: return put(to, float16(value));
        case TensorType::i64: return put(to, static_cast<std::int64_t>(value));
        case TensorType::i16: return put(to, static_cast<std::int16_t>(value));
        case TensorType::u8: return put(to, static_cast<std::uint8_t>(value));
        case TensorType::boolean: return put(to, static_cast<std::uint8_t>(value & 1));
        default: MUSTER_CHECK(false, name(type));
    }
}

int save(const test::SharedBoard& board, const runtime::GroupTerms& terms, const std::string& directory,
         std::int64_t step) {
    CheckpointState state;
    state.values = {{"cursor", "sample 96"}, {"ключ", "значение"}};
    state.rank_value = "generator of " + std::to_string(terms.rank);
    std::vector<std::vector<std::byte>> memory;
    for (std::size_t t = 0; t < tensors().size(); ++t) {
        const auto& [name, type, shape, placement] = tensors()[t];
        const auto all = *runtime::element_count(shape);
        const auto share = [&](int rank) {
            return all * static_cast<unsigned>(rank) / static_cast<unsigned>(terms.size);
        };
        const bool whole = placement == Placement::replicated;
        const auto begin = whole ? 0 : share(terms.rank), end = whole ? all : share(terms.rank + 1);
        auto& bytes = memory.emplace_back((end - begin + 1) * size_of(type));
        for (auto i = begin; i < end; ++i) {
            put_element(&bytes[(i - begin) * size_of(type)], type, static_cast<unsigned>((7 * i + t) % 120));
        }
        state.tensors.push_back(whole ? StateTensor::whole(name, type, shape, bytes.data())
                                      : StateTensor::shard(name, type, shape, bytes.data(), begin, end - begin));
    }
    auto world = test::join_shared_group(terms);
    auto checkpointer =
        Checkpointer::open(world, board.connect(), {.job = "interop", .round = 4}, {.directory = directory});
    auto saved = checkpointer ? checkpointer->save(step, state) : checkpointer.error();
    if (saved) saved = checkpointer->finish();
    if (!saved) std::fprintf(stderr, "rank %d: %s\n", terms.rank, saved.error().context.c_str());
    return saved ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: writer DIRECTORY WORLD STEP\n");
        return 2;
    }
    const test::SharedBoard board;
    test::RankProcesses ranks(std::atoi(argv[2]), [&](const runtime::GroupTerms& terms) {
        return save(board, terms, argv[1], std::atoll(argv[3]));
    });
    for (const auto& end : ranks.join()) {
        if (!end.exited || end.code != 0) return 1;
    }
    return 0;
}
