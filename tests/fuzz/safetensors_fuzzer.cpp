// The readers of safetensors headers and of a rank's file: what they accept lies inside the file, and a header written
// anew reads the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/check.h"
#include "worker_runtime/checkpoint/format/rank_file.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace {

using namespace muster::runtime;

void check_header(std::string_view file, std::uint64_t data_begin) {
    const auto header = parse_safetensors(file, file.size());
    if (!header) return;
    const auto data_bytes = file.size() - data_begin;
    std::uint64_t at = 0;
    for (const auto& tensor : header->tensors) {
        MUSTER_CHECK(tensor.begin == at && tensor.end >= at, tensor.name, tensor.begin, at);
        at = tensor.end;
    }
    MUSTER_CHECK(at == data_bytes, at, data_bytes);
    const auto again = make_safetensors_header(*header, 8);
    const auto same = parse_safetensors(again, again.size() + data_bytes);
    MUSTER_CHECK(same.has_value() && *same == *header, again);
}

void check_rank_file(std::string_view file) {
    const auto parsed = parse_rank_file(file, file.size());
    if (!parsed) return;
    MUSTER_CHECK(parsed->rank >= 0 && parsed->rank < parsed->world, parsed->rank, parsed->world);
    for (const auto& [piece, offset, crc] : parsed->pieces) {
        MUSTER_CHECK(offset <= file.size() && piece.size_bytes() <= file.size() - offset, offset, piece.count);
        const auto elements = element_count(piece.shape);
        MUSTER_CHECK(elements && piece.begin <= *elements && piece.count <= *elements - piece.begin, piece.begin);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const auto data_begin = safetensors_data_begin(file, size);
    if (!data_begin) return 0;
    check_header(file, *data_begin);
    check_rank_file(file);
    return 0;
}
