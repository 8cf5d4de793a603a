#include "worker_runtime/gpu_test/gpu_steps.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "worker_runtime/gpu_test/known_product.h"
#include "worker_runtime/gpu_test/record.h"
#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

namespace {

using Seconds = std::chrono::duration<double>;
using kernels::launch;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t page_bytes = 4096;
constexpr std::uint32_t smallest_size = 256, largest_size = 4096;
constexpr Seconds product_time{0.5}, copy_time{0.15};
/// A larger size is taken while one product takes less, because the start of a kernel takes a part of it.
constexpr Seconds product_enough{0.001};
constexpr Seconds batch_time{0.01};
constexpr std::uint64_t batch_max = 32;
/// More than any cache of a GPU has.
constexpr std::size_t copied_within_bytes = 128 * mib, copied_bytes = 64 * mib;

void begin_step(std::string_view name) {
    print_record(cat("step", field("name", name)));
}

/// The time that `work` and all that it put on the GPU took.
Result<Seconds> timed(TestDevice& device, auto work) {
    const auto begin = std::chrono::steady_clock::now();
    MUSTER_TRY(work());
    MUSTER_TRY(device.finish());
    return Seconds(std::chrono::steady_clock::now() - begin);
}

/// One pair of matrices on the GPU.
template <class Kernel, class Element>
class ProductOnGpu {
  public:
    static Result<ProductOnGpu> put(TestDevice& device, const KnownProduct<Element>& known) {
        ProductOnGpu product;
        const auto bytes = known.a.size() * sizeof(Element);
        product.a_ = MUSTER_TRY(device.allocate(bytes));
        product.b_ = MUSTER_TRY(device.allocate(bytes));
        product.kernel_ = {.a = product.a_.template as<Element>(),
                           .b = product.b_.template as<Element>(),
                           .sums = nullptr,
                           .size = known.size,
                           .depth = known.depth};
        const auto items = product.kernel_.items();
        product.sums_ = MUSTER_TRY(device.allocate(batch_max * items * sizeof(std::uint64_t)));
        product.sums_on_host_.resize(batch_max * items);
        product.expected_ = known.checksum;
        MUSTER_TRY(device.copy(product.a_.template as<void>(), known.a.data(), bytes));
        MUSTER_TRY(device.copy(product.b_.template as<void>(), known.b.data(), bytes));
        MUSTER_TRY(device.finish());
        return product;
    }

    /// Multiplies `count` times, at most batch_max, and counts wrong checksums.
    Result<Seconds> multiply(TestDevice& device, std::uint64_t count) {
        const auto items = kernel_.items();
        const auto launch_all = [&]() -> Result<void> {
            for (std::uint64_t i = 0; i < count; ++i) {
                auto kernel = kernel_;
                kernel.sums = sums_.template as<std::uint64_t>() + i * items;
                MUSTER_TRY(launch(device, kernel));
            }
            return {};
        };
        const auto took = MUSTER_TRY(timed(device, launch_all));
        MUSTER_TRY(device.copy(sums_on_host_.data(), sums_.template as<void>(), count * items * sizeof(std::uint64_t)));
        MUSTER_TRY(device.finish());
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto begin = sums_on_host_.begin() + static_cast<std::ptrdiff_t>(i * items);
            const auto sum = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(items), std::uint64_t{0});
            wrong_ += sum == expected_ ? 0 : 1;
        }
        count_ += count;
        return took;
    }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

  private:
    Kernel kernel_{};
    DeviceMemory a_, b_, sums_;
    std::vector<std::uint64_t> sums_on_host_;
    std::uint64_t expected_ = 0, count_ = 0, wrong_ = 0;
};

template <class Kernel, class Element>
Result<void> test_products_of(TestDevice& device, const char* type,
                              KnownProduct<Element> (*make)(std::uint32_t, std::uint64_t), std::uint64_t seed) {
    begin_step(cat("products in ", type));
    std::uint64_t count = 0, wrong = 0;
    for (std::uint32_t size = smallest_size;; size *= 4) {
        auto product = MUSTER_TRY(ProductOnGpu<Kernel, Element>::put(device, make(size, seed)));
        MUSTER_TRY(product.multiply(device, 1));  // the first also loads the code
        const auto one = MUSTER_TRY(product.multiply(device, 1));
        if (size < largest_size && one < product_enough) {
            count += product.count();
            wrong += product.wrong();
            continue;
        }
        const auto batch = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(batch_time / one), 1, batch_max);
        Seconds best = one, all{0};
        while (all < product_time) {
            const auto took = MUSTER_TRY(product.multiply(device, batch));
            all += took;
            best = std::min(best, took / static_cast<double>(batch));
        }
        const double work = 2.0 * size * size * size;
        print_record(cat("product", field("type", type), field("size", size), field("count", count + product.count()),
                         field("wrong", wrong + product.wrong()),
                         field("gflops", static_cast<std::uint64_t>(work / best.count() / 1e9))));
        return {};
    }
}

/// Host memory that is locked as long as this object lives.
class LockedNumbers {
  public:
    static Result<LockedNumbers> make(TestDevice& device, std::size_t size_bytes) {
        LockedNumbers numbers;
        numbers.data_.reset(static_cast<std::uint64_t*>(::aligned_alloc(page_bytes, size_bytes)));
        if (!numbers.data_) return Error{Errc::limit_exceeded, "the host has too little memory for the test"};
        numbers.count_ = size_bytes / sizeof(std::uint64_t);
        std::fill_n(numbers.data_.get(), numbers.count_, 0);
        // It depends on limits of this host, and says nothing about the GPU.
        if (auto done = device.pin(numbers.data_.get(), size_bytes); !done)
            return Error{Errc::limit_exceeded, done.error().context};
        numbers.device_ = &device;
        return numbers;
    }
    LockedNumbers(LockedNumbers&& other) noexcept
        : device_(std::exchange(other.device_, nullptr)), data_(std::move(other.data_)), count_(other.count_) {}
    LockedNumbers& operator=(LockedNumbers&&) = delete;
    ~LockedNumbers() {
        if (device_ != nullptr) (void)device_->unpin(data_.get());
    }

    void randomise(std::uint64_t seed) {
        for (std::size_t i = 0; i < count_; ++i) data_.get()[i] = kernels::mixed(seed + i);
    }
    [[nodiscard]] std::uint64_t* data() const { return data_.get(); }
    [[nodiscard]] std::size_t difference_count(const LockedNumbers& other) const {
        std::size_t count = 0;
        for (std::size_t i = 0; i < count_; ++i) count += data_.get()[i] != other.data_.get()[i] ? 1 : 0;
        return count;
    }

  private:
    struct Free {
        void operator()(void* memory) const { ::free(memory); }
    };
    LockedNumbers() = default;
    TestDevice* device_ = nullptr;  // null: not locked
    std::unique_ptr<std::uint64_t, Free> data_;
    std::size_t count_ = 0;
};

/// Copies until copy_time has passed. Returns the bytes a second of the fastest four copies.
Result<double> copy_speed(TestDevice& device, void* to, const void* from, std::size_t size_bytes) {
    constexpr int at_once = 4;
    double best = 0;
    Seconds all{0};
    while (all < copy_time) {
        const auto took = MUSTER_TRY(timed(device, [&] {
            Result<void> copied;
            for (int i = 0; copied && i < at_once; ++i) copied = device.copy(to, from, size_bytes);
            return copied;
        }));
        all += took;
        best = std::max(best, at_once * static_cast<double>(size_bytes) / took.count());
    }
    return best;
}

Result<void> test_copy(TestDevice& device, const char* way, void* to, const void* from, std::size_t size_bytes) {
    begin_step(cat("copies ", way));
    const auto speed = MUSTER_TRY(copy_speed(device, to, from, size_bytes));
    print_record(cat("copy", field("way", way), field("mbytes-per-s", static_cast<std::uint64_t>(speed / 1e6))));
    return {};
}

}  // namespace

Result<void> test_products(TestDevice& device, std::uint64_t seed) {
    MUSTER_TRY(test_products_of<kernels::CheckHalves>(device, "f16", known_halves, seed));
    return test_products_of<kernels::CheckFloats>(device, "f32", known_floats, seed);
}

Result<void> test_copies(TestDevice& device, std::uint64_t seed) {
    begin_step("memory for copies");
    auto sent = MUSTER_TRY(LockedNumbers::make(device, copied_bytes));
    const auto received = MUSTER_TRY(LockedNumbers::make(device, copied_bytes));
    sent.randomise(seed);
    const auto first = MUSTER_TRY(device.allocate(copied_within_bytes));
    const auto second = MUSTER_TRY(device.allocate(copied_within_bytes));
    auto* const there = first.as<void>();
    auto* const beside = second.as<void>();
    MUSTER_TRY(test_copy(device, "to the GPU", there, sent.data(), copied_bytes));
    MUSTER_TRY(test_copy(device, "from the GPU", received.data(), there, copied_bytes));
    auto wrong = sent.difference_count(received);
    MUSTER_TRY(test_copy(device, "within the GPU", beside, there, copied_within_bytes));
    MUSTER_TRY(device.copy(received.data(), beside, copied_bytes));
    MUSTER_TRY(device.finish());
    wrong += sent.difference_count(received);
    print_record(cat("copied", field("wrong", wrong), field("mib", copied_bytes / mib)));
    return {};
}

Result<void> test_memory(TestDevice& device, std::uint64_t seed) {
    begin_step("the pattern in memory");
    const auto bytes = std::min(device.free_bytes() / 8, 1024 * mib) / mib * mib;
    if (bytes == 0) return Error{Errc::limit_exceeded, "the GPU has less than 8 MiB of free memory"};
    const auto memory = MUSTER_TRY(device.allocate(bytes));
    const auto counts = MUSTER_TRY(device.allocate(kernels::PatternCompare::items_max * sizeof(std::uint64_t)));
    std::vector<std::uint64_t> found(kernels::PatternCompare::items_max);
    std::uint64_t wrong = 0;
    for (const std::uint64_t flip : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        const kernels::PatternWrite write{
            .data = memory.as<std::uint64_t>(), .count = bytes / sizeof(std::uint64_t), .seed = seed, .flip = flip};
        const kernels::PatternCompare compare{
            .data = write.data, .count = write.count, .seed = seed, .flip = flip, .wrong = counts.as<std::uint64_t>()};
        MUSTER_TRY(launch(device, write));
        MUSTER_TRY(launch(device, compare));
        MUSTER_TRY(device.finish());
        MUSTER_TRY(device.copy(found.data(), compare.wrong, compare.items() * sizeof(std::uint64_t)));
        MUSTER_TRY(device.finish());
        wrong += std::accumulate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(compare.items()),
                                 std::uint64_t{0});
    }
    print_record(cat("memory", field("mib", bytes / mib), field("wrong", wrong)));
    return {};
}

}  // namespace muster::runtime
