// The reader of workers' error files: any bytes give a bounded message and no crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agent/diagnosis/error_file.h"
#include "rendezvous/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto error = muster::agent::parse_error_file({reinterpret_cast<const char*>(data), size});
    MUSTER_CHECK(error.message.size() <= 16 * 1024, error.message.size());
    return 0;
}
