#include "rendezvous/wire/c10d/request.h"

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/limits.h"

namespace muster::c10d {

namespace {

constexpr ShapeLimits request_limits{key_bytes_max, value_bytes_max, keys_per_request_max, request_bytes_max};

// What follows the operation's byte.
constexpr Shape shape_of(Operation operation) {
    switch (operation) {
        case Operation::validate:
        case Operation::ping: return {"4"};
        case Operation::set:
        case Operation::append:
        case Operation::queue_push: return {"kv"};
        case Operation::compare_set: return {"kvv"};
        case Operation::get:
        case Operation::delete_key:
        case Operation::queue_pop:
        case Operation::queue_len:
        case Operation::watch_key: return {"k"};
        case Operation::add:
        case Operation::barrier: return {"k8"};
        case Operation::check:
        case Operation::wait:
        case Operation::wait_get:
        case Operation::multi_get: return {"", Repeat::counted, "k"};
        case Operation::multi_set: return {"", Repeat::counted, "kv"};
        case Operation::num_keys:
        case Operation::cancel_wait:
        case Operation::list_keys: return {""};
    }
    return {""};
}

void decode_keys(ByteReader& reader, bool with_values, Request& request) {
    const auto count = reader.number<std::uint64_t>();
    if (count > keys_per_request_max) reader.fail();
    for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
        request.keys.push_back(reader.blob<std::uint64_t>(key_bytes_max));
        if (with_values) request.values.push_back(reader.blob<std::uint64_t>(value_bytes_max));
    }
}

}  // namespace

std::string_view name(Operation operation) {
    switch (operation) {
        case Operation::validate: return "VALIDATE";
        case Operation::set: return "SET";
        case Operation::compare_set: return "COMPARE_SET";
        case Operation::get: return "GET";
        case Operation::add: return "ADD";
        case Operation::check: return "CHECK";
        case Operation::wait: return "WAIT";
        case Operation::num_keys: return "GETNUMKEYS";
        case Operation::delete_key: return "DELETE_KEY";
        case Operation::append: return "APPEND";
        case Operation::multi_get: return "MULTI_GET";
        case Operation::multi_set: return "MULTI_SET";
        case Operation::cancel_wait: return "CANCEL_WAIT";
        case Operation::ping: return "PING";
        case Operation::queue_push: return "QUEUE_PUSH";
        case Operation::queue_pop: return "QUEUE_POP";
        case Operation::queue_len: return "QUEUE_LEN";
        case Operation::list_keys: return "LIST_KEYS";
        case Operation::barrier: return "BARRIER";
        case Operation::wait_get: return "WAIT_GET";
        case Operation::watch_key: return "WATCH_KEY";
    }
    return "?";
}

Scan RequestScanner::scan(std::string_view bytes) {
    if (!begun_) {
        if (bytes.empty()) return Scan::incomplete;
        const auto number = static_cast<std::uint8_t>(bytes[0]);
        const auto operation = operation_from_byte(family_, number);
        if (!operation) {
            refusal_ = cat("unknown operation ", number);
            return Scan::refused;
        }
        operation_ = *operation;
        scanner_.start(shape_of(operation_), request_limits, 1);
        begun_ = true;
    }
    const auto result = scanner_.scan(bytes);
    if (result == Scan::refused) refusal_ = cat(name(operation_), ": ", scanner_.refusal());
    if (result == Scan::complete) begun_ = false;
    return result;
}

bool decode_request(Family family, std::string_view head, const std::string* tail, Request& request) {
    request.keys.clear();
    request.values.clear();
    ByteReader reader(head);
    const auto operation = operation_from_byte(family, reader.number<std::uint8_t>());
    if (!operation || head.empty()) return false;
    request.operation = *operation;
    const Shape shape = shape_of(*operation);
    if (shape.repeat == Repeat::counted) {
        if (tail != nullptr) return false;
        decode_keys(reader, shape.each == "kv", request);
        return reader.finished();
    }
    bool first_value = true;
    for (std::size_t i = 0; i < shape.once.size(); ++i) {
        switch (shape.once[i]) {
            case '4': request.nonce = reader.number<std::uint32_t>(); break;
            case '8': request.number = reader.number<std::int64_t>(); break;
            case 'k': request.key = reader.blob<std::uint64_t>(key_bytes_max); break;
            default: {
                if (shape.once == "kvv" && !first_value) request.expected = request.value;
                first_value = false;
                const bool apart = tail != nullptr && i + 1 == shape.once.size();
                if (apart && reader.number<std::uint64_t>() != tail->size()) reader.fail();
                request.value = apart ? std::string_view(*tail) : reader.blob<std::uint64_t>(value_bytes_max);
            }
        }
    }
    return reader.finished();
}

void encode_request(Family family, const Request& request, std::string& out) {
    const auto number = byte_of(family, request.operation);
    MUSTER_CHECK(number.has_value(), name(request.operation));
    ByteWriter writer(out);
    writer.number(*number);
    const Shape shape = shape_of(request.operation);
    if (shape.repeat == Repeat::counted) {
        const bool with_values = shape.each == "kv";
        MUSTER_CHECK(!with_values || request.keys.size() == request.values.size(), request.keys.size());
        writer.number(static_cast<std::uint64_t>(request.keys.size()));
        for (std::size_t i = 0; i < request.keys.size(); ++i) {
            writer.blob<std::uint64_t>(request.keys[i]);
            if (with_values) writer.blob<std::uint64_t>(request.values[i]);
        }
        return;
    }
    for (std::size_t i = 0; i < shape.once.size(); ++i) {
        const bool is_expected = shape.once == "kvv" && i == 1;
        switch (shape.once[i]) {
            case '4': writer.number(request.nonce); break;
            case '8': writer.number(request.number); break;
            case 'k': writer.blob<std::uint64_t>(request.key); break;
            default: writer.blob<std::uint64_t>(is_expected ? request.expected : request.value);
        }
    }
}

}  // namespace muster::c10d
