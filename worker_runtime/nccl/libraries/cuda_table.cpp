#include "worker_runtime/nccl/libraries/cuda_table.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/libraries/shared_object.h"

namespace muster::runtime {

namespace {

/// The names of all supported versions; the driver's version decides (suits_driver).
const std::vector<std::string> usual_names{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};

class Finder {
  public:
    explicit Finder(const SharedObject& library) : library_(library) {}

    template <class Function>
    void if_there(Function& place, const char* symbol) const {
        place = reinterpret_cast<Function>(library_.find(symbol));
    }
    void operator()(auto& place, const char* symbol) {
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

/// A runtime needs a driver of its own major version or newer. Without a driver, every runtime is accepted.
bool suits_driver(const CudaTable& table) {
    int runtime = 0;
    int driver = 0;
    const bool known = table.runtime_version(&runtime) == cudaSuccess && table.driver_version(&driver) == cudaSuccess;
    return !known || driver == 0 || driver / 1000 >= runtime / 1000;
}

/// Finds the driver's functions, in its own library, which the runtime loads too. A stand-in has both in one library.
void find_driver(CudaTable& table, const SharedObject& runtime) {
    const auto look_in = [&table](const SharedObject& library) {
        const Finder find(library);
        find.if_there(table.current_context, "cuCtxGetCurrent");
        find.if_there(table.set_current_context, "cuCtxSetCurrent");
        return table.current_context != nullptr && table.set_current_context != nullptr;
    };
    if (look_in(runtime)) return;
    const auto driver = SharedObject::open("libcuda.so.1");
    if (!driver || !look_in(*driver)) table.current_context = nullptr;
}

Result<CudaTable> load_one(const std::string& name) {
    auto library = MUSTER_TRY(SharedObject::open(name));
    CudaTable table;
    Finder find(library);
#define MUSTER_FIND(member, function) find(table.member, #function);
    MUSTER_CUDA_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
    find(table.allocate, "cudaMalloc");
    find(table.pointer_attributes, "cudaPointerGetAttributes");
    find.if_there(table.can_reach, "cudaDeviceCanAccessPeer");
    find.if_there(table.allow_reach, "cudaDeviceEnablePeerAccess");
    find.if_there(table.load_library, "cudaLibraryLoadData");
    find.if_there(table.get_kernel, "cudaLibraryGetKernel");
    find_driver(table, library);
    table.path = library.path();
    if (!find.missing().empty()) {
        return Error{Errc::unsupported, cat(table.path, " lacks ", join(find.missing(), ", "),
                                            ": is it CUDA's runtime library, version 11 or newer?")};
    }
    return table;
}

Error no_runtime(std::string_view said, std::string_view named) {
    return no_library("CUDA runtime library", {"MUSTER_CUDA_LIBRARY", named}, said);
}

}  // namespace

Result<CudaTable> CudaTable::load(const std::string& named) {
    if (named.empty()) return load_first(usual_names);
    auto table = load_one(named);
    if (!table) return no_runtime(table.error().context, named);
    return table;
}

Result<CudaTable> CudaTable::load_first(const std::vector<std::string>& names) {
    // Libraries that are already loaded come first: those of the trainer (libtorch), which uses them.
    auto order = names;
    std::ranges::stable_partition(order, &SharedObject::is_loaded);
    std::optional<CudaTable> too_new;
    std::vector<std::string> reasons;
    for (const auto& name : order) {
        auto table = load_one(name);
        if (!table) {
            reasons.push_back(table.error().context);
        } else if (suits_driver(*table)) {
            return table;
        } else if (!too_new) {
            too_new = std::move(*table);
        }
    }
    if (too_new) return std::move(*too_new);
    return no_runtime(join(reasons, "; "), {});
}

Result<void> CudaTable::check(cudaError_t result, std::string_view what) const {
    if (result == cudaSuccess) return {};
    (void)last_error();
    return Error{Errc::unsupported,
                 cat(what, ": ", error_string(result), " (CUDA error ", static_cast<int>(result), ")")};
}

bool CudaTable::is_of_device(const void* memory) const {
    // cudaPointerAttributes has 24 bytes up to CUDA 12 and 88 in CUDA 13; the rest is for later versions.
    union {
        cudaPointerAttributes known;
        std::byte room[512];
    } facts{};
    // Runtimes before 11 report memory that is unknown to them as an invalid value.
    if (!check(pointer_attributes(&facts, memory), "ask whose memory it is")) return false;
    return facts.known.type == cudaMemoryTypeDevice || facts.known.type == cudaMemoryTypeManaged;
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
