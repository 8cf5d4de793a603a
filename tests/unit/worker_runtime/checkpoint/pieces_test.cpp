#include "worker_runtime/checkpoint/format/pieces.h"

#include <map>
#include <random>

#include "tests/support/catch.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

char memory[1];  // nobody looks at it

StateTensor random_tensor(std::mt19937& random, int number) {
    std::vector<std::int64_t> shape(random() % 4);
    for (auto& size : shape) size = static_cast<std::int64_t>(random() % (random() % 3 == 0 ? 600 : 20));
    const auto type = static_cast<TensorType>(random() % tensor_type_count);
    return StateTensor::whole("t" + std::to_string(number), type, shape, memory);
}

}  // namespace

TEST_CASE("a tensor that is no shard is rank 0's, whole, whatever its size") {
    const auto tensors = std::vector{StateTensor::whole("large", TensorType::f32, {1 << 20}, memory),
                                     StateTensor::whole("mean", TensorType::f32, {64}, memory),
                                     StateTensor::whole("count", TensorType::i64, {}, memory),
                                     StateTensor::whole("none", TensorType::f32, {0}, memory)};
    for (const int world : {1, 2, 5}) {
        for (int rank = 0; rank < world; ++rank) {
            const auto pieces = own_pieces(tensors, Replicas::rank_0, rank, world);
            REQUIRE(pieces.size() == (rank == 0 ? tensors.size() : 0));
            for (const auto& piece : pieces) CHECK(piece.whole());
        }
    }
}

TEST_CASE("replicas that are spread are each written by one rank, whole, in parts of about equal size") {
    for (unsigned seed = 0; seed < 300; ++seed) {
        std::mt19937 random(seed);
        std::vector<StateTensor> tensors;
        std::uint64_t total = 0, largest = 0;
        for (int i = 0, count = static_cast<int>(random() % 30); i < count; ++i) {
            tensors.push_back(random_tensor(random, i));
            const auto bytes = *element_count(tensors.back().shape) * size_of(tensors.back().type);
            if (bytes < spread_bytes_min) continue;
            total += bytes;
            largest = std::max(largest, bytes);
        }
        const int world = 1 + static_cast<int>(random() % 8);
        std::map<std::string, int> writers;
        for (int rank = 0; rank < world; ++rank) {
            std::uint64_t mine = 0;
            for (const auto& piece : own_pieces(tensors, Replicas::spread, rank, world)) {
                INFO("seed " << seed << ", rank " << rank << ", " << piece.tensor);
                CHECK(piece.whole());
                CHECK((rank == 0 || piece.size_bytes() >= spread_bytes_min));
                ++writers[piece.tensor];
                if (piece.size_bytes() >= spread_bytes_min) mine += piece.size_bytes();
            }
            CHECK(mine <= total / static_cast<std::uint64_t>(world) + 1 + largest);
        }
        for (const auto& tensor : tensors) {
            INFO("seed " << seed << ", " << tensor.name);
            CHECK(writers[tensor.name] == 1);
        }
    }
}

TEST_CASE("shards are written by the rank that has them") {
    const std::vector tensors{StateTensor::shard("m", TensorType::f32, {10}, memory, 4, 3),
                              StateTensor::shard("m", TensorType::f32, {10}, memory, 9, 1),
                              StateTensor::shard("v", TensorType::f32, {10}, memory, 0, 0)};
    const auto pieces = own_pieces(tensors, Replicas::rank_0, 1, 4);
    REQUIRE(pieces.size() == 2);
    CHECK((pieces[0].begin == 4 && pieces[0].count == 3));
    CHECK((pieces[1].begin == 9 && pieces[1].count == 1));
}

TEST_CASE("a state that cannot be saved is refused, naming the tensor") {
    const auto complaint = [](std::vector<StateTensor> tensors) {
        const auto checked = check_state({.tensors = std::move(tensors)});
        return checked ? std::string() : checked.error().context;
    };
    const auto good = StateTensor::whole("w", TensorType::f32, {2}, memory);
    CHECK(complaint({good}).empty());
    CHECK_THAT(complaint({good, good}), Catch::Contains("'w' occurs twice"));
    CHECK_THAT(complaint({StateTensor::whole("", TensorType::f32, {2}, memory)}), Catch::Contains("empty"));
    CHECK_THAT(complaint({StateTensor::whole("\xFF", TensorType::f32, {2}, memory)}), Catch::Contains("UTF-8"));
    CHECK_THAT(complaint({StateTensor::whole("__metadata__", TensorType::f32, {2}, memory)}),
               Catch::Contains("reserves"));
    CHECK_THAT(complaint({StateTensor::whole("w[0:2]", TensorType::f32, {2}, memory)}), Catch::Contains("[0:2]"));
    CHECK(complaint({StateTensor::whole("w[0]", TensorType::f32, {2}, memory)}).empty());
    CHECK_THAT(complaint({StateTensor::whole("w", TensorType::f32, {-1}, memory)}), Catch::Contains("invalid shape"));
    CHECK_THAT(complaint({StateTensor::whole("w", TensorType::f64, {1LL << 61}, memory)}),
               Catch::Contains("invalid shape"));
    CHECK_THAT(complaint({StateTensor::whole("w", TensorType::f32, {2}, nullptr)}), Catch::Contains("no memory"));
    CHECK(complaint({StateTensor::whole("w", TensorType::f32, {0}, nullptr)}).empty());
    CHECK_THAT(complaint({StateTensor::shard("w", TensorType::f32, {4}, memory, 3, 2)}),
               Catch::Contains("beyond its end"));
    CHECK_THAT(complaint({StateTensor::shard("w", TensorType::f32, {4}, memory, 5, ~std::uint64_t{0})}),
               Catch::Contains("beyond its end"));
    CHECK_FALSE(check_state({.values = {{"k", "\xC3"}}}).has_value());
    CHECK_FALSE(check_state({.rank_value = "\xC3"}).has_value());
}

}  // namespace muster::runtime
