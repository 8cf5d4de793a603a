#include "rendezvous/wire/c10d/reply.h"

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/wire/c10d/limits.h"
#include "rendezvous/wire/c10d/operation_table.h"

namespace muster::c10d {

namespace {

// A server of another make may hold more than ours would take (torch's legacy server has no limits), so a client
// accepts larger values and lists: the bound is what it is willing to hold for one reply.
constexpr ShapeLimits reply_limits{request_bytes_max, request_bytes_max, 64 * 1024 * 1024, request_bytes_max};

}  // namespace

void ReplyScanner::start(Operation operation, std::size_t key_count) {
    scanner_.start(row_of(operation).reply, reply_limits, 0, key_count);
}

bool decode_reply(Operation operation, std::size_t key_count, std::string_view bytes, Reply& reply) {
    reply = Reply{};
    const Shape shape = row_of(operation).reply;
    ByteReader reader(bytes);
    for (const char field : shape.once) {
        switch (field) {
            case '1': reply.flag = reader.number<std::uint8_t>(); break;
            case '4': reply.nonce = reader.number<std::uint32_t>(); break;
            case '8': reply.number = reader.number<std::int64_t>(); break;
            default: reply.blobs.emplace_back(reader.blob<std::uint64_t>(request_bytes_max));
        }
    }
    std::uint64_t count = shape.repeat == Repeat::given ? key_count : 0;
    if (shape.repeat == Repeat::counted || shape.repeat == Repeat::at_most_one) {
        reply.number = reader.number<std::int64_t>();
        count = reply.number > 0 ? static_cast<std::uint64_t>(reply.number) : 0;
        if (shape.repeat == Repeat::at_most_one && count > 1) count = 1;
        if (shape.repeat == Repeat::counted && reply.number < 0) reader.fail();
    }
    for (std::uint64_t i = 0; i < count && reader.ok(); ++i)
        reply.blobs.emplace_back(reader.blob<std::uint64_t>(request_bytes_max));
    return reader.finished();
}

}  // namespace muster::c10d
