#include "rendezvous/wire/c10d/reply.h"

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/wire/c10d/limits.h"

namespace muster::c10d {

namespace {

// A server of another make may hold more than ours would take (torch's legacy server has no limits), so a client
// accepts larger values and lists: the bound is what it is willing to hold for one reply.
constexpr ShapeLimits reply_limits{request_bytes_max, request_bytes_max, 64 * 1024 * 1024, request_bytes_max};

constexpr Shape shape_of_reply(Operation operation) {
    switch (operation) {
        case Operation::get:
        case Operation::compare_set: return {"v"};
        case Operation::add:
        case Operation::num_keys:
        case Operation::delete_key:
        case Operation::queue_len: return {"8"};
        case Operation::check:
        case Operation::wait:
        case Operation::barrier:
        case Operation::cancel_wait:
        case Operation::watch_key: return {"1"};
        case Operation::ping: return {"4"};
        case Operation::multi_get: return {"", Repeat::given, "v"};
        case Operation::wait_get: return {"1", Repeat::given, "v"};
        case Operation::queue_pop: return {"", Repeat::at_most_one, "v"};
        case Operation::list_keys: return {"", Repeat::counted, "k"};
        case Operation::validate:
        case Operation::set:
        case Operation::append:
        case Operation::multi_set:
        case Operation::queue_push: return {""};
    }
    return {""};
}

}  // namespace

void ReplyScanner::start(Operation operation, std::size_t key_count) {
    scanner_.start(shape_of_reply(operation), reply_limits, 0, key_count);
}

bool decode_reply(Operation operation, std::size_t key_count, std::string_view bytes, Reply& reply) {
    reply = Reply{};
    const Shape shape = shape_of_reply(operation);
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

void encode_reply(Operation operation, const Reply& reply, std::string& out) {
    const Shape shape = shape_of_reply(operation);
    ByteWriter writer(out);
    std::size_t next_blob = 0;
    for (const char field : shape.once) {
        switch (field) {
            case '1': writer.number(reply.flag); break;
            case '4': writer.number(reply.nonce); break;
            case '8': writer.number(reply.number); break;
            default: writer.blob<std::uint64_t>(reply.blobs.at(next_blob++));
        }
    }
    if (shape.repeat == Repeat::counted || shape.repeat == Repeat::at_most_one) writer.number(reply.number);
    if (shape.repeat == Repeat::never) return;
    for (; next_blob < reply.blobs.size(); ++next_blob) writer.blob<std::uint64_t>(reply.blobs[next_blob]);
}

}  // namespace muster::c10d
