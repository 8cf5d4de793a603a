// What ranks find out together before the first step.
#include "worker_runtime/reducer/start_up.h"

#include <chrono>
#include <cstring>
#include <memory>

#include "tests/support/catch.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/communicator/private_memory.h"

namespace muster::runtime {

namespace {

/// One rank of two, without the other: an all_reduce takes a time of its own, by its size, and a broadcast brings what
/// rank 0's has left in `told`.
class RankAlone final : public Transport {
  public:
    RankAlone(int rank, Duration small, Duration large, std::string& told)
        : rank_(rank), small_(small), large_(large), told_(told) {}

    [[nodiscard]] std::string_view name() const override { return "alone"; }
    Result<void> run(const Operation& operation, const RunTerms&) override {
        const std::size_t bytes = operation.count * muster::size_of(operation.type);
        if (operation.kind == OperationKind::broadcast) {
            if (rank_ == 0) told_.assign(static_cast<const char*>(operation.input), bytes);
            std::memcpy(operation.output, told_.data(), bytes);
            return {};
        }
        const auto end = std::chrono::steady_clock::now() + (bytes < 4096 ? small_ : large_);
        while (std::chrono::steady_clock::now() < end) {
        }
        return {};
    }
    Result<void> transfer(const Operation&, const RunTerms&) override { return {}; }
    Result<Memory> allocate(std::size_t size_bytes, const RunTerms&) override { return private_memory(size_bytes); }
    void abort(std::string_view) override {}

  private:
    int rank_;
    Duration small_;
    Duration large_;
    std::string& told_;
};

BucketCaps measured_by(int rank, Duration small, Duration large, std::string& told) {
    CommunicatorBody::Terms terms{.group = {.rank = rank, .size = 2, .id = "world", .place = nullptr},
                                  .timeout = std::chrono::seconds(60),
                                  .make_transport = {}};
    Communicator communicator(
        std::make_shared<CommunicatorBody>(std::move(terms), std::make_unique<RankAlone>(rank, small, large, told)));
    return measured_caps(communicator, {}).value();
}

}  // namespace

TEST_CASE("buckets whose size is measured have the size that rank 0 has measured, on all ranks") {
    std::string told;
    const auto first = measured_by(0, 2ms, 6ms, told);
    const auto other = measured_by(1, 0ms, 1ms, told);
    CHECK(first.cap_bytes > std::size_t{1} << 20);  // the smallest that is ever chosen, and rank 1's own choice
    CHECK(other.cap_bytes == first.cap_bytes);
    CHECK(other.first_bytes == first.first_bytes);
}

}  // namespace muster::runtime
