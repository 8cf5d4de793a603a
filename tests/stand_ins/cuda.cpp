// A stand-in for CUDA's runtime library over host memory: the part of it that the NCCL plugin uses, loaded in its
// place.
//
// A stream is a thread that runs what was put on it, in order. Device memory is device_memory.h's. As on a GPU, freeing
// memory waits until every stream is idle: who frees while an operation is stuck hangs.
//
// Compiled with STANDIN_NEW it is of a version that its driver is too old for.
//
// MUSTER_STANDIN_GPUS    how many GPUs there are (8)
// MUSTER_STANDIN_PINS    0: no host memory can be pinned
// MUSTER_STANDIN_GPU_FAULT  a fault of the hardware: has_fault() in current_device.h
// MUSTER_STANDIN_HIDDEN  1: the host cannot touch device memory, as on a real GPU: it dies of SIGSEGV
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/stand_ins/current_device.h"
#include "tests/stand_ins/device_memory.h"

using muster::stand_ins::keep;
using muster::stand_ins::use_current_device;

namespace {

class Stream {
  public:
    explicit Stream(int gpu) : device(gpu), thread_([this] { serve(); }) {}
    ~Stream() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
            changed_.notify_all();
        }
        thread_.join();
    }

    const int device;

    void put(std::function<void()> work) {
        use_current_device();
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
        changed_.notify_all();
    }
    void wait_idle() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
    }

  private:
    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
            if (queue_.empty()) return;
            auto work = std::move(queue_.front());
            queue_.pop_front();
            busy_ = true;
            lock.unlock();
            work();
            lock.lock();
            busy_ = false;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    bool busy_ = false;
    bool stop_ = false;
    std::thread thread_;
};

/// One recording of an event.
struct Moment {
    std::mutex mutex;
    std::condition_variable changed;
    bool come = false;
};

struct Event {
    int device = 0;
    std::shared_ptr<Moment> last{};
};

struct Gpu {
    std::mutex mutex;
    std::set<Stream*> streams;
};

Gpu& gpu() {
    static Gpu& one = *new Gpu;  // streams may outlive static objects
    return one;
}

/// Host memory that is pinned, by its first byte.
struct Pins {
    std::mutex mutex;
    std::map<void*, std::size_t> sizes;
    int mistakes = 0;  ///< twice, without having been pinned, or after the memory had gone
};

Pins& pins() {
    static Pins& all = *new Pins;
    return all;
}

bool is_mapped(void* memory, std::size_t size) {
    std::vector<unsigned char> pages((size + 4095) / 4096);
    return ::mincore(memory, size, pages.data()) == 0;
}

std::atomic<int> frees_waiting = 0;

Stream& stream_of(cudaStream_t stream) {
    return *reinterpret_cast<Stream*>(stream);
}

Event& event_of(cudaEvent_t event) {
    return *reinterpret_cast<Event*>(event);
}

void wait_until_all_streams_are_idle() {
    std::set<Stream*> streams;
    {
        const std::lock_guard lock(gpu().mutex);
        streams = gpu().streams;
    }
    for (auto* const stream : streams) stream->wait_idle();
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
    while (muster::stand_ins::has_fault("hang")) ::pause();
    auto* const made = new Stream(use_current_device());
    const std::lock_guard lock(gpu().mutex);
    gpu().streams.insert(made);
    *stream = reinterpret_cast<cudaStream_t>(made);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    {
        const std::lock_guard lock(gpu().mutex);
        gpu().streams.erase(&stream_of(stream));
    }
    delete &stream_of(stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
    *event = reinterpret_cast<cudaEvent_t>(new Event{.device = use_current_device()});
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete &event_of(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (event_of(event).device != stream_of(stream).device) return keep(cudaErrorInvalidResourceHandle);
    auto moment = std::make_shared<Moment>();
    event_of(event).last = moment;
    stream_of(stream).put([moment] {
        const std::lock_guard lock(moment->mutex);
        moment->come = true;
        moment->changed.notify_all();
    });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const auto moment = event_of(event).last;
    use_current_device();
    if (!moment) return cudaSuccess;
    const std::lock_guard lock(moment->mutex);
    return moment->come ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    stream_of(stream).put([moment = event_of(event).last] {
        if (!moment) return;
        std::unique_lock lock(moment->mutex);
        moment->changed.wait(lock, [&moment] { return moment->come; });
    });
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    stream_of(stream).put([function, argument] { function(argument); });
    return cudaSuccess;
}

int standin_device_of(cudaStream_t stream) {
    return stream_of(stream).device;
}

/// As a free does it, for an abort: that has told its kernels to end before.
void standin_wait_until_idle() {
    use_current_device();
    wait_until_all_streams_are_idle();
}

int standin_frees_waiting() {
    return frees_waiting;
}

cudaError_t cudaFree(void* memory) {
    use_current_device();
    ++frees_waiting;
    wait_until_all_streams_are_idle();
    --frees_waiting;
    return keep(muster::stand_ins::give_back(memory) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void* memory, std::size_t size, unsigned /*flags*/) {
    const char* const text = std::getenv("MUSTER_STANDIN_PINS");
    if (text != nullptr && std::string_view(text) == "0") return keep(cudaErrorMemoryAllocation);
    use_current_device();
    const std::lock_guard lock(pins().mutex);
    const bool fresh = is_mapped(memory, size) && pins().sizes.emplace(memory, size).second;
    if (!fresh) ++pins().mistakes;
    return keep(fresh ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* memory) {
    const std::lock_guard lock(pins().mutex);
    const auto found = pins().sizes.find(memory);
    const bool there = found != pins().sizes.end() && is_mapped(memory, found->second);
    if (!there) ++pins().mistakes;
    if (found != pins().sizes.end()) pins().sizes.erase(found);
    return keep(there ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

/// How many bytes are pinned; -1 after a mistake.
long standin_pinned_bytes() {
    const std::lock_guard lock(pins().mutex);
    long bytes = 0;
    for (const auto& [memory, size] : pins().sizes) bytes += static_cast<long>(size);
    return pins().mistakes > 0 ? -1 : bytes;
}

cudaError_t cudaDeviceSynchronize() {
    use_current_device();
    wait_until_all_streams_are_idle();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
    if (muster::stand_ins::is_of_device(to) && muster::stand_ins::is_of_device(from)) {
        const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
        const bool sees_peers = visible != nullptr && std::strchr(visible, ',') != nullptr;
        const bool is_wrong = sees_peers && muster::stand_ins::has_fault("wrong_peer", stream_of(stream).device);
        stream_of(stream).put([to = standin_reach(to), from = standin_reach(from), size, is_wrong] {
            std::memcpy(to, from, size);
            if (is_wrong) static_cast<char*>(to)[size / 2] ^= 1;
        });
        return cudaSuccess;
    }
    use_current_device();
    constexpr std::size_t slow_bytes_per_us = 100;
    if (muster::stand_ins::has_fault("slow_copy"))
        std::this_thread::sleep_for(std::chrono::microseconds(size / slow_bytes_per_us));
    // As with pageable host memory: it has been read, or written, when the call returns.
    stream_of(stream).wait_idle();
    std::memcpy(standin_reach(to), standin_reach(from), size);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
    *can = device != other ? 1 : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int /*other*/, unsigned /*flags*/) {
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t stream) {
    stream_of(stream).put([memory = standin_reach(memory), value, size] { std::memset(memory, value, size); });
    return cudaSuccess;
}

}  // extern "C"
