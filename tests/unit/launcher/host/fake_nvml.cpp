// Stands in for libnvidia-ml.so.1: the devices are those that FAKE_NVML names, e.g. "GPU-a;GPU-b=MIG-x,MIG-y" (two
// GPUs, the second partitioned), "broken" for a driver that does not answer. The file FAKE_NVML_USE has a line for each
// GPU, "USED_BYTES PID:BYTES PID:BYTES", and may change at any time. FAKE_NVML=hang: nvmlInit never returns.
// FAKE_NVML_ASKED names a file that gets the index of a GPU each time that its use is asked for.
// FAKE_NVML_HEALTH has fields of the health of a GPU by its index, "1 recovery 2": see health_of().
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Device {
    std::string uuid;
    bool partitioned = false;
    std::vector<Device> parts;
};

std::vector<std::string> pieces(const std::string& text, char separator) {
    std::vector<std::string> found(1);
    for (const char c : text)
        if (c == separator)
            found.emplace_back();
        else
            found.back().push_back(c);
    return found;
}

struct Use {
    unsigned long long used = 0;
    std::vector<std::pair<unsigned, unsigned long long>> processes;
};

std::vector<Device>& devices();

/// A field of FAKE_NVML_HEALTH, "INDEX FIELD VALUE", or what is healthy.
unsigned long long health_of(void* device, const std::string& field, unsigned long long healthy) {
    const char* const text = std::getenv("FAKE_NVML_HEALTH");
    std::istringstream words(text != nullptr ? text : "");
    std::ptrdiff_t index = 0;
    std::string name;
    unsigned long long value = 0;
    while (words >> index >> name >> value)
        if (index == static_cast<Device*>(device) - devices().data() && name == field) return value;
    return healthy;
}

Use use_of(void* device) {
    const char* const path = std::getenv("FAKE_NVML_USE");
    std::ifstream file(path != nullptr ? path : "");
    std::string line;
    for (auto left = static_cast<Device*>(device) - devices().data(); left >= 0; --left)
        if (!std::getline(file, line)) return {};
    Use use;
    std::istringstream words(line);
    words >> use.used;
    unsigned pid = 0;
    unsigned long long bytes = 0;
    char colon = 0;
    while (words >> pid >> colon >> bytes) use.processes.emplace_back(pid, bytes);
    return use;
}

std::vector<Device>& devices() {
    static std::vector<Device> all;
    return all;
}

constexpr int success = 0;
constexpr int not_found = 6;

}  // namespace

extern "C" {

int nvmlInit_v2() {
    devices().clear();
    const char* text = std::getenv("FAKE_NVML");
    if (text == nullptr || std::strcmp(text, "broken") == 0) return 9;
    while (std::strcmp(text, "hang") == 0) ::pause();
    if (*text == '\0') return success;
    for (const auto& one : pieces(text, ';')) {
        const auto equals = one.find('=');
        Device device{one.substr(0, equals), equals != std::string::npos, {}};
        if (device.partitioned && equals + 1 < one.size())
            for (const auto& part : pieces(one.substr(equals + 1), ',')) device.parts.push_back({part, false, {}});
        devices().push_back(device);
    }
    return success;
}

int nvmlShutdown() {
    return success;
}
const char* nvmlErrorString(int) {
    return "Driver Not Loaded";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(devices().size());
    return success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    if (index >= devices().size()) return not_found;
    *device = &devices()[index];
    constexpr int lost = 15;
    return health_of(*device, "lost", 0) != 0 ? lost : success;
}

int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
    std::strncpy(text, static_cast<Device*>(device)->uuid.c_str(), size);
    return success;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
    *current = *pending = static_cast<Device*>(device)->partitioned ? 1 : 0;
    return success;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
    *count = 7;
    return success;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** part) {
    auto& parts = static_cast<Device*>(device)->parts;
    if (index >= parts.size()) return not_found;
    *part = &parts[index];
    return success;
}

struct Pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
    // The n-th GPU is 0000:en:00.0.
    *pci = {};
    pci->bus = 0xe0 + static_cast<unsigned>(static_cast<Device*>(device) - devices().data());
    return success;
}

struct Memory {
    unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
    *memory = {1ULL << 36, 0, use_of(device).used};
    return success;
}

struct Utilization {
    unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, Utilization* shares) {
    constexpr int not_supported = 3;
    constexpr unsigned long long unknown = 101;
    const auto percent = health_of(device, "busy", unknown);
    if (const char* const asked = std::getenv("FAKE_NVML_ASKED"))
        std::ofstream(asked, std::ios::app) << static_cast<Device*>(device) - devices().data();
    *shares = {static_cast<unsigned>(percent), 0};
    return percent == unknown ? not_supported : success;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
    *corrected = *uncorrected = 0;
    *pending = static_cast<unsigned>(health_of(device, "rows-pending", 0));
    *failed = static_cast<unsigned>(health_of(device, "rows-failed", 0));
    return success;
}
int nvmlDeviceGetTotalEccErrors(void* device, int, int, unsigned long long* count) {
    *count = health_of(device, "ecc-uncorrected", 0);
    return success;
}
int nvmlDeviceGetMemoryErrorCounter(void* device, int, int, int, unsigned long long* count) {
    *count = health_of(device, "sram-corrected", 0);
    return success;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
    if (link >= 18) return not_found;
    *active = link < health_of(device, "nvlinks", 18) ? 1 : 0;
    return success;
}
struct FabricInfo {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
int nvmlDeviceGetGpuFabricInfoV(void* device, FabricInfo* info) {
    if (info->version != 0x02000024) return 2;
    info->status = 0;
    info->state = static_cast<unsigned char>(health_of(device, "fabric", 3));
    info->health = static_cast<unsigned>(health_of(device, "fabric-health", 0xaa));
    return success;
}
struct FieldValue {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};
int nvmlDeviceGetFieldValues(void* device, int, FieldValue* value) {
    constexpr unsigned recovery_action = 230;
    value->result = value->field == recovery_action ? success : 3;
    value->value = health_of(device, "recovery", 0);
    return success;
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
    *reasons = health_of(device, "clocks", 1);  // idle
    return success;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
    std::strncpy(text, "Stand-in", size);
    return success;
}
// A link of 250 MB/s, which the stand-in for CUDA surpasses.
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* generation) {
    *generation = static_cast<unsigned>(health_of(device, "link-generation", 1));
    return success;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* width) {
    *width = static_cast<unsigned>(health_of(device, "link-width", 1));
    return success;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
    std::strncpy(text, "570.00", size);
    return success;
}

struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
    const auto use = use_of(device);
    *count = static_cast<unsigned>(use.processes.size());
    for (unsigned i = 0; i < *count; ++i) processes[i] = {use.processes[i].first, use.processes[i].second, 0, 0};
    return success;
}
}
