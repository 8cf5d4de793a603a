#include "rendezvous/wire/c10d/request.h"

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/c10d/limits.h"
#include "rendezvous/wire/c10d/operation_table.h"

namespace muster::c10d {

namespace {

constexpr ShapeLimits request_limits{key_bytes_max, value_bytes_max, keys_per_request_max, request_bytes_max};

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
    return row_of(operation).name;
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
        scanner_.start(row_of(operation_).request, request_limits, 1);
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
    const Shape shape = row_of(*operation).request;
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
    const Shape shape = row_of(request.operation).request;
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
