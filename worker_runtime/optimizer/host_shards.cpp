#include <cstring>
#include <vector>

#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/core/optimizer_math.h"
#include "worker_runtime/optimizer/shard_math.h"

namespace muster::runtime {

namespace {

class HostShards final : public ShardMath {
  public:
    Result<void> take(Communicator& /*communicator*/, std::size_t count) override {
        memory_.assign(count, 0);
        return {};
    }
    std::span<float> next(std::size_t count) override {
        const auto taken = std::span(memory_).subspan(used_, count);
        used_ += count;
        return taken;
    }

    Result<void> load(const ConstBuffer& parameter, const Buffer& /*room*/, std::span<float> values) override {
        convert(parameter, buffer(values));
        return {};
    }
    Result<void> update(const OptimizerRule& rule, std::uint64_t number, const Buffer& gradient,
                        const OptimizerPiece& piece) override {
        scratch_.resize(gradient.count);
        convert(gradient, buffer(std::span<float>(scratch_)));
        runtime::update(rule, number, scratch_, piece.values, piece.first, piece.second);
        return {};
    }
    Result<void> store(std::span<float> values, const Buffer& to) override {
        convert(buffer(values), to);
        return {};
    }
    Result<void*> mark(std::size_t /*number*/) override { return static_cast<void*>(nullptr); }
    Result<void> hand_out(const ConstBuffer& from, void* to) override {
        if (from.count > 0) std::memcpy(to, from.data, from.count * size_of(from.type));
        return {};
    }
    Result<void> finish() override { return {}; }

  private:
    std::vector<float> memory_;
    std::size_t used_ = 0;
    std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<ShardMath> make_host_shards() {
    return std::make_unique<HostShards>();
}

}  // namespace muster::runtime
