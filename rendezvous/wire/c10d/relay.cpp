#include "rendezvous/wire/c10d/relay.h"

#include <algorithm>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/wire/c10d/operation.h"

namespace muster::c10d {

namespace {

constexpr std::size_t header_bytes = 2 * sizeof(std::uint32_t);

}  // namespace

std::string relay_handshake() {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(static_cast<std::uint8_t>(Operation::validate));
    writer.number(relay_magic);
    return bytes;
}

void append_relay_header(std::string& out, std::uint32_t client, std::uint32_t size) {
    ByteWriter writer(out);
    writer.number(client);
    writer.number(size);
}

std::optional<RelayReader::Piece> RelayReader::next(std::string_view& bytes) {
    if (left_ == 0) {
        const auto missing = std::min(bytes.size(), header_bytes - header_.size());
        header_.append(bytes.substr(0, missing));
        bytes.remove_prefix(missing);
        if (header_.size() < header_bytes) return std::nullopt;
        ByteReader reader(header_);
        client_ = reader.number<std::uint32_t>();
        left_ = reader.number<std::uint32_t>();
        header_.clear();
        if (left_ == 0) return Piece{.client = client_, .bytes = {}};
    }
    if (bytes.empty()) return std::nullopt;
    const auto piece = bytes.substr(0, left_);
    bytes.remove_prefix(piece.size());
    left_ -= static_cast<std::uint32_t>(piece.size());
    return Piece{.client = client_, .bytes = piece};
}

}  // namespace muster::c10d
