// c10d requests: what the scanner calls whole must decode, and must encode to the same bytes again; and the scanner's
// verdict must not depend on how much it saw at a time. The first input byte chooses the family.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/c10d/request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::c10d;
    if (size == 0) return 0;
    const Family family = data[0] % 2 == 0 ? Family::newer : Family::older;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    RequestScanner at_once;
    at_once.set_family(family);
    const Scan verdict = at_once.scan(bytes);

    RequestScanner stepwise;
    stepwise.set_family(family);
    Scan step = Scan::incomplete;
    std::size_t shown = 0;
    while (step == Scan::incomplete && shown < bytes.size()) {
        shown = std::min(bytes.size(), std::max(stepwise.needed(), shown + 1));
        step = stepwise.scan(bytes.substr(0, shown));
    }
    MUSTER_CHECK(step == verdict, size);

    Request request;
    const bool whole = verdict == Scan::complete;
    const std::string_view message = whole ? bytes.substr(0, at_once.needed()) : bytes;
    MUSTER_CHECK(decode_request(family, message, nullptr, request) == whole, size);
    if (!whole) return 0;
    std::string again;
    encode_request(family, request, again);
    MUSTER_CHECK(again == message, size);
    return 0;
}
