// c10d replies as a client reads them. Input: the operation, the number of keys asked for, the bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "rendezvous/wire/c10d/reply.h"
#include "tests/support/c10d_reply.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::c10d;
    if (size < 2) return 0;
    const auto operation = operation_from_byte(Family::newer, data[0]);
    if (!operation) return 0;
    const std::size_t key_count = data[1];
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    ReplyScanner scanner;
    scanner.start(*operation, key_count);
    const bool whole = scanner.scan(bytes) == Scan::complete;
    const std::string_view message = whole ? bytes.substr(0, scanner.needed()) : bytes;
    Reply reply;
    const bool decoded = decode_reply(*operation, key_count, message, reply);
    MUSTER_CHECK(decoded == whole, size);
    if (!decoded) return 0;
    std::string again;
    encode_reply(*operation, reply, again);
    MUSTER_CHECK(again == message, size);
    return 0;
}
