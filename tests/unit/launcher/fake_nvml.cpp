// Stands in for libnvidia-ml.so.1: the devices are those that FAKE_NVML names, e.g. "GPU-a;GPU-b=MIG-x,MIG-y" (two
// GPUs, the second partitioned), "broken" for a driver that does not answer.
#include <cstdlib>
#include <cstring>
#include <string>
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
    return success;
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
}
