// The NVML functions that are used, loaded at run time. Their ABI has been stable since 2012 (MIG: since 2020).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::agent {

inline constexpr const char* gpu_library = "libnvidia-ml.so.1";

struct GpuProcess {
    std::uint32_t pid = 0;
    std::uint64_t used_bytes = 0;  ///< 0 also if the driver does not report it.
};

class GpuDriver {
  public:
    using Device = void*;
    static constexpr int success = 0;

    /// `library` is what is given to dlopen. The errors: not_found without it, unsupported, io in NVML's own words. May
    /// start threads of the driver's.
    static Result<GpuDriver> load(const std::string& library);

    [[nodiscard]] std::string words(int failed) const;
    [[nodiscard]] std::string uuid_of(Device device) const;
    /// As sysfs names it, "0000:dc:00.0"; empty where the driver does not say.
    [[nodiscard]] std::string pci_address_of(Device device) const;
    /// Those that compute on it; empty also where the driver does not say.
    [[nodiscard]] std::vector<GpuProcess> processes_of(Device device) const;
    /// Bytes that are taken, by whomever; 0 where the driver does not say.
    [[nodiscard]] std::uint64_t used_bytes_of(Device device) const;

    /// The UUIDs of its MIG devices. Nothing: it is not partitioned.
    [[nodiscard]] std::optional<std::vector<std::string>> parts_of(Device device) const;

    /// A function that this library may have; null if it does not.
    [[nodiscard]] void* symbol(const char* name) const;
    /// Calls the function of that name. False: the library does not have it, or it failed. The types of the arguments
    /// are the function's ABI, so a literal needs the type that NVML has.
    template <class... Arguments>
    bool ask(const char* name, Arguments... arguments) const {
        const auto function = reinterpret_cast<int (*)(Arguments...)>(symbol(name));
        return function != nullptr && function(arguments...) == success;
    }

    int (*device_count)(unsigned*) = nullptr;
    int (*device_by_index)(unsigned, Device*) = nullptr;

  private:
    template <class Function>
    void find(const char* name, Function*& function) const {
        function = reinterpret_cast<Function*>(symbol(name));
    }

    void* handle_ = nullptr;  // never unloaded: the driver's threads may live in it
};

}  // namespace muster::agent
