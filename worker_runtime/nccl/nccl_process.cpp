#include "worker_runtime/nccl/nccl_process.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/nccl_comm.h"

extern char** environ;

namespace muster::runtime {

namespace {

/// Returns the user's settings of NCCL, which are never changed: "NCCL_DEBUG=INFO, NCCL_IB_HCA=mlx5".
std::string settings() {
    std::vector<std::string> found;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (std::string_view(*entry).starts_with("NCCL_")) found.emplace_back(*entry);
    }
    std::sort(found.begin(), found.end());
    return found.empty() ? "no NCCL_* set" : join(found, ", ");
}

/// The process's object, if there is one.
struct InUse {
    std::mutex mutex;
    std::weak_ptr<NcclProcess> process;
};

InUse& in_use() {
    static InUse one;
    return one;
}

class CudaPin final : public HostPin {
  public:
    CudaPin(const std::shared_ptr<NcclProcess>& process, void* memory)
        : process_(process), cuda_(process->cuda()), device_(process->terms().device), memory_(memory) {}
    ~CudaPin() override {
        // After a failure this might wait for a stuck kernel, and the process is about to exit anyway.
        const auto process = process_.lock();
        if (process && process->failed()) return;
        if (const auto used = DeviceScope::enter(cuda_, device_)) (void)cuda_.unpin(memory_);
    }

  private:
    std::weak_ptr<NcclProcess> process_;
    CudaTable cuda_;  // the library stays loaded, independent of communicators
    int device_;
    void* memory_;
};

}  // namespace

Result<std::unique_ptr<HostPin>> NcclProcess::pin(void* memory, std::size_t size_bytes) {
    std::shared_ptr<NcclProcess> process;
    {
        const std::lock_guard lock(in_use().mutex);
        process = in_use().process.lock();
    }
    if (!process || process->failed()) return std::unique_ptr<HostPin>();
    const auto used = MUSTER_TRY(process->use_device());
    const auto& cuda = process->cuda();
    MUSTER_TRY(cuda.check(cuda.pin(memory, size_bytes, cudaHostRegisterPortable),
                          cat("pin ", size_bytes >> 10, " KiB of host memory")));
    return std::unique_ptr<HostPin>(std::make_unique<CudaPin>(process, memory));
}

Result<std::shared_ptr<NcclProcess>> NcclProcess::open(const NcclTerms& terms) {
    const std::lock_guard lock(in_use().mutex);
    auto& current = in_use().process;
    if (auto process = current.lock()) {
        if (!process->failed()) return process;
        process->wait_over();
    }
    std::shared_ptr<NcclProcess> process(new NcclProcess(terms));
    MUSTER_TRY(process->load());
    current = process;
    return process;
}

Result<void> NcclProcess::load() {
    cuda_ = MUSTER_TRY(CudaTable::load(terms_.cuda_library));
    nccl_ = MUSTER_TRY(NcclTable::load(terms_.nccl_library));
    MUSTER_TRY(find_device());
    watch_ = MUSTER_TRY(FdWatch::start());
    driver_ = MUSTER_TRY(AbortDriver::start(terms_.abort_limit, abort_steps()));
    return {};
}

std::string NcclProcess::description() const {
    return cat("NCCL ", nccl_version_text(nccl_.features.version), " (", features_text(nccl_.features), "), ",
               cuda_.versions(), ", device ", terms_.device, " at ", device_name_, "; ", settings());
}

Result<void> NcclProcess::find_device() {
    int count = 0;
    MUSTER_TRY(cuda_.check(cuda_.device_count(&count), "no usable GPU"));
    if (terms_.device >= count) {
        return Error{Errc::unsupported,
                     cat("no usable GPU: this rank's would be number ", terms_.device, ", and ", count,
                         count == 1 ? " is" : " are", " visible: start at most one worker per GPU")};
    }
    const auto used = MUSTER_TRY(use_device());
    char name[32] = {};
    MUSTER_TRY(cuda_.check(cuda_.pci_bus_id(name, sizeof name, terms_.device), "ask for the GPU's address"));
    device_name_ = name;
    return {};
}

NcclProcess::~NcclProcess() {
    if (driver_) driver_->wait_over();
}

Result<DeviceScope> NcclProcess::use_device() const {
    return DeviceScope::enter(cuda_, terms_.device);
}

const Result<KernelImage>& NcclProcess::kernels() {
    std::call_once(kernels_loaded_, [this] {
        const auto used = use_device();
        kernels_.emplace(used ? KernelImage::load(cuda_, terms_.device) : Result<KernelImage>(used.error()));
    });
    return *kernels_;
}

Result<void> NcclProcess::launch(const KernelCall& call, cudaStream_t stream) {
    if (!kernels()) return kernels().error();
    const auto used = MUSTER_TRY(use_device());
    return kernels()->launch(cuda_, call, stream);
}

void NcclProcess::add(const std::shared_ptr<NcclComm>& communicator) {
    const std::lock_guard lock(mutex_);
    // After an abort nothing removes a communicator, and it and this object would keep each other alive.
    if (!failed()) communicators_.insert(communicator);
}

void NcclProcess::remove(const std::shared_ptr<NcclComm>& communicator) {
    const std::lock_guard lock(mutex_);
    communicators_.erase(communicator);
}

std::uint64_t NcclProcess::add_failure_listener(std::function<void(const std::string& why)> tell) {
    const std::lock_guard lock(mutex_);
    tellers_[next_failure_listener_] = std::move(tell);
    return next_failure_listener_++;
}

void NcclProcess::remove_failure_listener(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    tellers_.erase(number);
}

std::vector<std::shared_ptr<NcclComm>> NcclProcess::communicators() const {
    const std::lock_guard lock(mutex_);
    return {communicators_.begin(), communicators_.end()};
}

AbortSteps NcclProcess::abort_steps() {
    return {.publish =
                [this](const std::string& why) {
                    std::map<std::uint64_t, std::function<void(const std::string&)>> tellers;
                    {
                        const std::lock_guard lock(mutex_);
                        tellers = tellers_;
                    }
                    for (const auto& [number, tell] : tellers) tell(why);
                },
            .settle =
                [this] {
                    for (const auto& communicator : communicators()) communicator->settle();
                },
            .deregister =
                [this] {
                    for (const auto& communicator : communicators()) communicator->deregister_all();
                },
            .abort_all = [this] { abort_all(); },
            .release = [this] { release(); },
            .leave =
                [this](const std::string& why) {
                    const std::string text =
                        cat("NCCL blocks this worker: after \"", why, "\" its communicators could not be ",
                            "aborted within ", describe(terms_.abort_limit), "; exiting with code ",
                            exit_code_stuck_in_nccl, ", so that the agent can start it again");
                    terms_.log(LogLevel::error, text);
                    if (terms_.before_leaving) terms_.before_leaving(text);
                    ::_exit(exit_code_stuck_in_nccl);
                }};
}

void NcclProcess::abort_all() {
    const auto used = use_device();
    if (!used) return;
    const auto all = communicators();
    abort_together(all);
    // A communicator that a split was creating exists now, or never will.
    for (const auto& communicator : all) communicator->adopt();
    abort_together(all);
}

/// Aborts communicators at the same time. Each abort frees memory of the GPU, which waits for all work there, also that
/// of the other communicators: one after the other, the first would wait for ever. Libraries before 2.22 cannot abort
/// in a group, so each abort has its own thread.
void NcclProcess::abort_together(const std::vector<std::shared_ptr<NcclComm>>& all) {
    if (nccl_.features.group_abort) {
        nccl_.group_start();
        for (const auto& communicator : all) communicator->abort();
        nccl_.group_end();
        return;
    }
    std::vector<std::thread> threads;
    for (const auto& communicator : all) {
        threads.emplace_back([this, communicator] {
            if (const auto used = use_device()) communicator->abort();
        });
    }
    for (auto& thread : threads) thread.join();
}

void NcclProcess::release() {
    const auto gone = communicators();
    {
        const std::lock_guard lock(mutex_);
        communicators_.clear();
    }
    for (;;) {
        decltype(held_) given_back;
        {
            const std::lock_guard lock(mutex_);
            if (held_.empty()) {
                released_ = true;
                return;
            }
            given_back.swap(held_);
        }
        // The caller's own work may still use the memory. The wait is without the mutex, and within the abort's
        // limit.
        wait_for_gpu();
        for (const auto& [memory, use] : given_back) free_now(memory, use);
    }
}

bool NcclProcess::is_of_nccl(MemoryUse use) const {
    return use == MemoryUse::buckets && nccl_.features.registration;
}

Result<void*> NcclProcess::allocate(std::size_t size_bytes, MemoryUse use) {
    const auto used = MUSTER_TRY(use_device());
    void* memory = nullptr;
    const auto size = std::max<std::size_t>(size_bytes, 1);
    const auto done = is_of_nccl(use) ? nccl_.check(nccl_.allocate(&memory, size), "ncclMemAlloc", nullptr)
                                      : cuda_.check(cuda_.allocate(&memory, size), "cudaMalloc");
    if (!done) return Error{Errc::limit_exceeded, done.error().context};
    return memory;
}

void NcclProcess::wait_until_idle() {
    {
        const std::lock_guard lock(mutex_);
        if (failed() && !released_) return;
    }
    // Not under the mutex: an abort that begins meanwhile needs it to end a stuck kernel.
    wait_for_gpu();
}

void NcclProcess::wait_for_gpu() const {
    if (const auto used = use_device()) (void)cuda_.check(cuda_.synchronize(), "wait for the GPU");
}

void NcclProcess::free(void* memory, MemoryUse use) {
    {
        const std::lock_guard lock(mutex_);
        if (failed() && !released_) {
            held_.emplace_back(memory, use);
            return;
        }
    }
    // Not under the mutex: a free waits for all kernels, and an abort that begins meanwhile needs the mutex to end
    // them.
    free_now(memory, use);
}

void NcclProcess::free_now(void* memory, MemoryUse use) const {
    // If the device cannot be used, its context and the memory are gone.
    const auto used = use_device();
    if (!used) return;
    if (is_of_nccl(use)) {
        nccl_.free(memory);
    } else {
        cuda_.free(memory);
    }
}

}  // namespace muster::runtime
