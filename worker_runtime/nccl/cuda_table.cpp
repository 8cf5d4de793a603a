#include "worker_runtime/nccl/cuda_table.h"

#include <vector>

#include "rendezvous/base/text.h"
#include "worker_runtime/nccl/shared_object.h"

namespace muster::runtime {

namespace {

const std::vector<std::string> usual_names{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};

class Finder {
  public:
    explicit Finder(const SharedObject& library) : library_(library) {}

    template <class Function>
    void if_there(Function& place, const char* symbol) const {
        place = reinterpret_cast<Function>(library_.find(symbol));
    }
    template <class Function>
    void operator()(Function& place, const char* symbol) {
        if_there(place, symbol);
        if (place == nullptr) missing_.emplace_back(symbol);
    }
    [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }

  private:
    const SharedObject& library_;
    std::vector<std::string> missing_;
};

std::string version_text(int code) {
    return cat(code / 1000, ".", code % 1000 / 10);
}

}  // namespace

Result<CudaTable> CudaTable::load(const std::string& named) {
    auto library = SharedObject::open(named.empty() ? usual_names : std::vector{named});
    if (!library) {
        return with_context(library.error(), "no CUDA runtime library; name its file in MUSTER_CUDA_LIBRARY");
    }
    CudaTable table;
    Finder find(*library);
    find(table.runtime_version, "cudaRuntimeGetVersion");
    find(table.driver_version, "cudaDriverGetVersion");
    find(table.error_string, "cudaGetErrorString");
    find(table.device_count, "cudaGetDeviceCount");
    find(table.set_device, "cudaSetDevice");
    find(table.pci_bus_id, "cudaDeviceGetPCIBusId");
    find(table.stream_create, "cudaStreamCreateWithFlags");
    find(table.stream_destroy, "cudaStreamDestroy");
    find(table.stream_wait_event, "cudaStreamWaitEvent");
    find(table.event_create, "cudaEventCreateWithFlags");
    find(table.event_destroy, "cudaEventDestroy");
    find(table.event_record, "cudaEventRecord");
    find(table.event_query, "cudaEventQuery");
    find(table.allocate, "cudaMalloc");
    find(table.free, "cudaFree");
    find(table.copy, "cudaMemcpyAsync");
    find(table.fill, "cudaMemsetAsync");
    find(table.pin, "cudaHostRegister");
    find(table.unpin, "cudaHostUnregister");
    find(table.synchronize, "cudaDeviceSynchronize");
    find(table.pointer_attributes, "cudaPointerGetAttributes");
    find(table.attribute, "cudaDeviceGetAttribute");
    find(table.launch, "cudaLaunchKernel");
    find.if_there(table.load_library, "cudaLibraryLoadData");
    find.if_there(table.get_kernel, "cudaLibraryGetKernel");
    table.path = library->path();
    if (!find.missing().empty()) {
        return Error{Errc::unsupported, cat(table.path, " lacks ", join(find.missing(), ", "),
                                            ": is it CUDA's runtime library, version 11 or newer?")};
    }
    return table;
}

Result<void> CudaTable::check(cudaError_t result, std::string_view what) const {
    if (result == cudaSuccess) return {};
    return Error{Errc::unsupported,
                 cat(what, ": ", error_string(result), " (CUDA error ", static_cast<int>(result), ")")};
}

std::string CudaTable::versions() const {
    int runtime = 0;
    int driver = 0;
    if (runtime_version(&runtime) != cudaSuccess) runtime = 0;
    if (driver_version(&driver) != cudaSuccess) driver = 0;
    return cat("CUDA runtime ", version_text(runtime), ", ",
               driver == 0 ? "no driver" : cat("driver ", version_text(driver)));
}

}  // namespace muster::runtime
