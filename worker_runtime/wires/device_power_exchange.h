// PowerSGD on GPUs: PowerExchange with the same bits and checkpoint format. Each of its two averages takes two
// collectives (device_average.h). NCCL averages buckets with nothing to compress, and steps before the first compressed
// one.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/kernels/power_kernels.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/device_average.h"
#include "worker_runtime/wires/device_residuals.h"
#include "worker_runtime/wires/power_plan.h"

namespace muster::runtime {

class DevicePowerExchange final : public BucketExchange {
  public:
    explicit DevicePowerExchange(const PowerSettings& settings) : settings_(settings), average_(DataType::f32) {}

    [[nodiscard]] std::string name() const override { return settings_.name(); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return settings_.compresses(bucket, staging_[bucket.index].plan) ? 4 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    [[nodiscard]] bool chained() const override { return true; }
    void keep(std::vector<std::byte>& to) const override;
    bool restore(std::span<const std::byte> from) override;

  private:
    struct Staging {
        PowerPlan plan;
        Buffer gradients{};
        Buffer lost{};
        bool counts = true;         ///< the rank has samples in this step
        DeviceAverage::Leg first;   ///< all P, then the uncompressed gradients
        DeviceAverage::Leg second;  ///< all Q
        std::vector<kernels::PowerPlace> places;
        std::vector<kernels::PowerSlice> slices;
        kernels::PowerCuts cuts;
        Buffer places_on_device{};
        Buffer slices_on_device{};
    };
    /// The arithmetic before and after the second collective of the average of P, or of Q.
    struct Step final : CollectiveSteps {
        const DevicePowerExchange* exchange = nullptr;
        const Staging* staging = nullptr;
        bool of_q = false;

        Result<void> before(KernelQueue& stream) const override;
        Result<void> behind(KernelQueue& stream) const override;
    };

    void lay_out(const ExchangeTerms& terms, std::span<const GradientBucket> buckets);
    void wish(std::size_t b, StagingPlan& plan);
    Result<void> take_kept(const ExchangeTerms& terms);
    Result<void> put_tables();

    [[nodiscard]] kernels::PowerTable table(const Staging& staging) const;
    [[nodiscard]] kernels::PowerPack pack(const Staging& staging, bool back) const;
    /// The arithmetic before the first collective, between the averages, and after the last collective.
    Result<void> project(const Staging& staging) const;
    Result<void> project_back(const Staging& staging, KernelQueue& stream) const;
    Result<void> restore(const Staging& staging, KernelQueue& stream) const;

    PowerSettings settings_;
    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Memory memory_;
    Memory kept_memory_;
    DeviceAverage average_;
    DeviceResiduals residuals_;
    Buffer kept_{};  ///< Q of all compressed parameters, by order of registration; independent of the buckets
    std::vector<std::size_t> kept_offsets_;
    /// Shared by all buckets, which use them one after the other on the collectives' stream.
    Buffer grams_{};
    Buffer parts_{};
    std::vector<Staging> staging_;
    std::deque<Step> steps_;  ///< two for each bucket
};

}  // namespace muster::runtime
