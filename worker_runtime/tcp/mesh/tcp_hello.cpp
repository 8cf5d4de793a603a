#include "worker_runtime/tcp/mesh/tcp_hello.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// "MUSTERT" and the version of this file's formats.
constexpr std::uint64_t magic = 0x0354524554'53554dull;
constexpr std::size_t places_max = 64;
constexpr std::size_t address_size_max = 256;
constexpr std::size_t host_size_max = 256;

std::string_view as_text(const std::byte* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
}

void read_token(ByteReader& reader, TcpToken& token) {
    const auto bytes = reader.raw(token.size());
    if (reader.ok()) std::memcpy(token.data(), bytes.data(), token.size());
}

}  // namespace

TcpToken random_token() {
    TcpToken token;
    const auto given = ::getrandom(token.data(), token.size(), 0);
    MUSTER_CHECK(given == static_cast<ssize_t>(token.size()), given);
    return token;
}

TcpHelloBytes encode(const TcpHello& hello) {
    std::string text;
    ByteWriter writer(text);
    writer.number(magic);
    writer.number(hello.from);
    writer.number(hello.to);
    writer.number(static_cast<std::uint8_t>(hello.purpose));
    writer.number(hello.lane);
    writer.number(hello.stripe);
    writer.number(std::uint8_t{0});
    writer.number(std::uint32_t{0});
    writer.raw(as_text(hello.token.data(), hello.token.size()));
    TcpHelloBytes bytes;
    MUSTER_CHECK(text.size() == bytes.size(), text.size());
    std::memcpy(bytes.data(), text.data(), bytes.size());
    return bytes;
}

std::optional<TcpHello> decode(const TcpHelloBytes& bytes) {
    ByteReader reader(as_text(bytes.data(), bytes.size()));
    if (reader.number<std::uint64_t>() != magic) return std::nullopt;
    TcpHello hello;
    hello.from = reader.number<std::uint32_t>();
    hello.to = reader.number<std::uint32_t>();
    const auto purpose = reader.number<std::uint8_t>();
    hello.lane = reader.number<std::uint8_t>();
    hello.stripe = reader.number<std::uint8_t>();
    reader.number<std::uint8_t>();
    reader.number<std::uint32_t>();
    read_token(reader, hello.token);
    if (!reader.finished() || purpose > static_cast<std::uint8_t>(TcpPurpose::lane)) return std::nullopt;
    hello.purpose = static_cast<TcpPurpose>(purpose);
    return hello;
}

std::string describe(const TcpPlace& place) {
    return cat(place.address, " port ", place.port);
}

std::string encode(const TcpCard& card) {
    std::string text;
    ByteWriter writer(text);
    MUSTER_CHECK(card.places.size() <= places_max, card.places.size());
    writer.number(magic);
    writer.number(card.stripes);
    writer.number(card.pid);
    writer.raw(as_text(card.token.data(), card.token.size()));
    writer.blob<std::uint16_t>(card.host);
    writer.number(static_cast<std::uint16_t>(card.places.size()));
    for (const auto& place : card.places) {
        writer.number(place.port);
        writer.blob<std::uint16_t>(place.address);
    }
    return text;
}

Result<TcpCard> decode_card(std::string_view bytes) {
    ByteReader reader(bytes);
    if (reader.number<std::uint64_t>() != magic) reader.fail();
    TcpCard card;
    card.stripes = reader.number<std::uint16_t>();
    card.pid = reader.number<std::int32_t>();
    read_token(reader, card.token);
    card.host = reader.blob<std::uint16_t>(host_size_max);
    const auto place_count = reader.number<std::uint16_t>();
    if (place_count > places_max) reader.fail();
    for (int i = 0; i < place_count && reader.ok(); ++i) {
        TcpPlace place;
        place.port = reader.number<std::uint16_t>();
        place.address = reader.blob<std::uint16_t>(address_size_max);
        card.places.push_back(std::move(place));
    }
    if (!reader.finished()) {
        return Error{Errc::bad_frame, "a rank runs another version of muster; use the same version on all nodes"};
    }
    return card;
}

}  // namespace muster::runtime
