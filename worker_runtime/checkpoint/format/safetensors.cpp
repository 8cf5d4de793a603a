#include "worker_runtime/checkpoint/format/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/safetensors_events.h"

namespace muster::runtime {

namespace {

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump();
}

Error bad(std::string text) {
    return {Errc::bad_frame, std::move(text)};
}

std::string body_of(const SafetensorsHeader& header) {
    std::string body = "{";
    const auto comma = [&body] {
        if (body.size() > 1) body += ',';
    };
    if (!header.metadata.empty()) {
        body += cat(quoted(std::string(metadata_key)), ":{");
        bool first = true;
        for (const auto& [key, value] : header.metadata) {
            body += cat(first ? "" : ",", quoted(key), ':', quoted(value));
            first = false;
        }
        body += '}';
    }
    for (const auto& tensor : header.tensors) {
        comma();
        body += cat(quoted(tensor.name), ":{\"dtype\":\"", name(tensor.type), "\",\"shape\":[");
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) body += cat(i == 0 ? "" : ",", tensor.shape[i]);
        body += cat("],\"data_offsets\":[", tensor.begin, ',', tensor.end, "]}");
    }
    return body + "}";
}

/// Checks that each tensor's size matches its shape, and that the tensors are adjacent and end at the file's end.
Result<void> check_layout(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
    std::uint64_t at = 0;
    for (const auto& tensor : tensors) {
        const auto elements = element_count(tensor.shape);
        std::uint64_t bytes = 0;
        if (!elements || __builtin_mul_overflow(*elements, size_of(tensor.type), &bytes)) {
            return bad(cat("tensor ", tensor.name, ": its shape has more elements than there are numbers"));
        }
        if (tensor.begin > tensor.end || tensor.end - tensor.begin != bytes) {
            return bad(cat("tensor ", tensor.name, ": data_offsets [", tensor.begin, ", ", tensor.end,
                           "] do not hold the ", bytes, " bytes that its shape needs"));
        }
        if (tensor.begin != at) {
            return bad(cat("tensor ", tensor.name, ": begins at byte ", tensor.begin, ", ",
                           tensor.begin < at ? "inside" : "not right behind", " the one before it, which ends at ",
                           at));
        }
        at = tensor.end;
    }
    if (at != data_bytes) {
        return bad(cat("the tensors end at byte ", at, " of the ", data_bytes, " behind the header",
                       at > data_bytes ? ": the file was cut short" : ": something else follows"));
    }
    return {};
}

}  // namespace

std::optional<std::uint64_t> element_count(const std::vector<std::int64_t>& shape) {
    std::uint64_t count = 1;
    for (const auto size : shape) {
        if (size < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) return std::nullopt;
    }
    return count;
}

std::string make_safetensors_header(const SafetensorsHeader& header, std::size_t alignment) {
    const auto body = body_of(header);
    const auto end = (safetensors_length_bytes + body.size() + alignment - 1) / alignment * alignment;
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(static_cast<std::uint64_t>(end - safetensors_length_bytes));
    writer.raw(body);
    bytes.resize(end, ' ');
    return bytes;
}

Result<std::uint64_t> safetensors_data_begin(std::string_view first_bytes, std::uint64_t file_bytes) {
    if (first_bytes.size() < safetensors_length_bytes || file_bytes < safetensors_length_bytes) {
        return bad("shorter than the 8 bytes that every safetensors file begins with");
    }
    const auto length = ByteReader(first_bytes.substr(0, safetensors_length_bytes)).number<std::uint64_t>();
    if (length > safetensors_header_bytes_max) {
        return bad(cat("a header of ", length, " bytes, more than the ", safetensors_header_bytes_max, " allowed"));
    }
    if (length > file_bytes - safetensors_length_bytes) {
        return bad(cat("a header of ", length, " bytes in a file of ", file_bytes));
    }
    return safetensors_length_bytes + length;
}

Result<SafetensorsHeader> parse_safetensors(std::string_view head, std::uint64_t file_bytes) {
    auto data_begin = MUSTER_TRY(safetensors_data_begin(head, file_bytes));
    MUSTER_CHECK(head.size() >= data_begin, head.size(), data_begin);
    const auto body = head.substr(safetensors_length_bytes, data_begin - safetensors_length_bytes);
    if (!body.starts_with('{')) return bad("the header does not begin with {");
    SafetensorsEvents events;
    if (!nlohmann::json::sax_parse(body.begin(), body.end(), &events)) return bad(events.trouble());
    if (events.unknown_type()) return Error{Errc::unsupported, *events.unknown_type()};
    auto header = events.take();
    std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    if (auto fine = check_layout(header.tensors, file_bytes - data_begin); !fine) return fine.error();
    return header;
}

}  // namespace muster::runtime
