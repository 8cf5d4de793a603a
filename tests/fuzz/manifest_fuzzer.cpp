// The reader of manifests, whose checksum is put right first, so that what lies behind it is reached: what is accepted
// reads the same when it is written anew, and its pieces lie inside their files.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rendezvous/base/check.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/json_text.h"
#include "worker_runtime/checkpoint/format/manifest.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace muster::runtime;
    constexpr std::size_t digits_begin = 11, digits = 8;  // {"crc32c":"........
    std::string text(reinterpret_cast<const char*>(data), size);
    (void)parse_manifest(text);
    if (text.size() < digits_begin + digits) return 0;
    text.replace(digits_begin, digits, digits, '0');
    text.replace(digits_begin, digits, crc_text(crc32c(std::as_bytes(std::span(text)))));
    const auto manifest = parse_manifest(text);
    if (!manifest) return 0;
    const auto again = parse_manifest(encode_manifest(*manifest));
    MUSTER_CHECK(again.has_value() && *again == *manifest, text);
    for (const auto& tensor : manifest->tensors) {
        std::uint64_t at = 0;
        for (const auto& piece : tensor.pieces) {
            const auto& file = manifest->files.at(piece.file);
            const auto bytes = piece.count * muster::size_of(tensor.type);
            MUSTER_CHECK(piece.begin == at && piece.offset <= file.bytes && bytes <= file.bytes - piece.offset, text);
            at += piece.count;
        }
        MUSTER_CHECK(at == element_count(tensor.shape), text);
    }
    return 0;
}
