#include "worker_runtime/gpu_test/test_device.h"

#include <stdlib.h>

#include <chrono>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr Duration step_limit = 20s;
constexpr auto poll_pause = std::chrono::microseconds(20);

}  // namespace

DeviceMemory::~DeviceMemory() {
    if (memory_ != nullptr) (void)device_->cuda_.free(memory_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), memory_(std::exchange(other.memory_, nullptr)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    return *this;
}

Result<void> TestDevice::check(cudaError_t result, const char* what) const {
    auto checked = cuda_.check(result, what);
    if (checked) return checked;
    return Error{result == cudaErrorMemoryAllocation ? Errc::limit_exceeded : Errc::io, checked.error().context};
}

Result<std::unique_ptr<TestDevice>> TestDevice::open(int number) {
    const char* const named = ::getenv("MUSTER_CUDA_LIBRARY");
    auto cuda = MUSTER_TRY(CudaTable::load(named != nullptr ? named : ""));
    std::unique_ptr<TestDevice> device(new TestDevice(std::move(cuda), number));
    auto& table = device->cuda_;
    MUSTER_TRY(device->check(table.set_device(number), "use the GPU"));
    MUSTER_TRY(device->check(table.stream_create(&device->stream_, cudaStreamNonBlocking), "make a stream on the GPU"));
    MUSTER_TRY(device->check(table.event_create(&device->done_, cudaEventDisableTiming), "make an event on the GPU"));
    device->kernels_ = MUSTER_TRY(KernelImage::load(table, number));
    return device;
}

Result<void> TestDevice::launch(const KernelCall& call) {
    auto launched = kernels_.launch(cuda_, call, stream_);
    if (launched) return launched;
    return Error{Errc::io, launched.error().context};
}

Result<void> TestDevice::copy(void* to, const void* from, std::size_t size_bytes) {
    return check(cuda_.copy(to, from, size_bytes, cudaMemcpyDefault, stream_), "copy");
}

Result<void> TestDevice::finish() {
    MUSTER_TRY(check(cuda_.event_record(done_, stream_), "record an event"));
    const auto end = std::chrono::steady_clock::now() + step_limit;
    for (;;) {
        const auto state = cuda_.event_query(done_);
        if (state != cudaErrorNotReady) return check(state, "wait for the GPU");
        (void)cuda_.last_error();
        if (std::chrono::steady_clock::now() > end)
            return Error{Errc::timed_out, cat("the GPU did not complete its work within ", describe(step_limit))};
        std::this_thread::sleep_for(poll_pause);
    }
}

Result<DeviceMemory> TestDevice::allocate(std::size_t size_bytes) const {
    void* memory = nullptr;
    // CUDA's functions without a stream mean the thread's GPU, which another object of this class may have chosen.
    MUSTER_TRY(check(cuda_.set_device(number_), "use the GPU"));
    if (auto made = check(cuda_.allocate(&memory, size_bytes), "allocate memory of the GPU"); !made)
        return Error{made.error().code, cat(made.error().context, ", ", size_bytes >> 20, " MiB")};
    return DeviceMemory(*this, memory);
}

Result<void> TestDevice::pin(void* memory, std::size_t size_bytes) {
    return check(cuda_.pin(memory, size_bytes, 0), "lock host memory");
}

Result<void> TestDevice::unpin(void* memory) {
    return check(cuda_.unpin(memory), "unlock host memory");
}

bool TestDevice::reaches(const TestDevice& other) const {
    int can = 0;
    if (cuda_.can_reach == nullptr || cuda_.allow_reach == nullptr ||
        cuda_.can_reach(&can, number_, other.number_) != cudaSuccess || can == 0)
        return false;
    if (!check(cuda_.set_device(number_), "use the GPU")) return false;
    const auto allowed = cuda_.allow_reach(other.number_, 0);
    (void)cuda_.last_error();
    return allowed == cudaSuccess || allowed == cudaErrorPeerAccessAlreadyEnabled;
}

std::size_t TestDevice::free_bytes() const {
    std::size_t free = 0, total = 0;
    return check(cuda_.memory_info(&free, &total), "ask for free memory") ? free : 0;
}

int TestDevice::attribute(cudaDeviceAttr which) const {
    int value = 0;
    return check(cuda_.attribute(&value, which, number_), "ask what the GPU can") ? value : 0;
}

}  // namespace muster::runtime
