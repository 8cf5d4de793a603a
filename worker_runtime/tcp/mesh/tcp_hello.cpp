#include "worker_runtime/tcp/mesh/tcp_hello.h"

#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// "MUSTERT" and the version of this file's formats.
constexpr std::uint64_t magic = 0x0654524554'53554dull;
constexpr std::size_t places_max = 64;
constexpr std::size_t address_size_max = 256;
constexpr std::size_t host_size_max = 256;

std::string_view as_text(const std::byte* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
}

template <std::size_t size>
std::string_view as_text(const std::array<std::byte, size>& bytes) {
    return as_text(bytes.data(), size);
}

void read_token(ByteReader& reader, TcpToken& token) {
    const auto bytes = reader.raw(token.size());
    if (reader.ok()) std::memcpy(token.data(), bytes.data(), token.size());
}

template <std::size_t size>
std::array<std::byte, size> as_bytes(std::string_view text) {
    std::array<std::byte, size> bytes;
    MUSTER_CHECK(text.size() == size, text.size(), size);
    std::memcpy(bytes.data(), text.data(), size);
    return bytes;
}

/// The sides hash different words. `said` has a fixed size for each side, so no two inputs are one text.
std::string proof_of(std::string_view side, const TcpPair& pair, const TcpToken& listener, std::string_view said) {
    const auto key = pair.security.key.empty() ? as_text(listener) : std::string_view(pair.security.key);
    // Who passes an encrypted connection on reads and changes nothing, so there the network may translate addresses.
    const auto at = pair.security.mode() == WireMode::key ? describe(pair.at) : std::string();
    return hmac_sha256(key, cat("muster tcp ", side, ' ', static_cast<int>(pair.security.mode()), ' ', pair.group, ' ',
                                at.size(), ' ', at, as_text(pair.caller), as_text(pair.called), said));
}

std::string_view unproven(const TcpHelloBytes& hello) {
    return as_text(hello).substr(0, hello.size() - tcp_proof_bytes);
}

}  // namespace

TcpToken random_token() {
    return as_bytes<sizeof(TcpToken)>(random_bytes(sizeof(TcpToken)));
}

TcpHelloBytes encode(const TcpHello& hello, const TcpPair& pair) {
    std::string text;
    ByteWriter writer(text);
    writer.number(magic);
    writer.number(hello.from);
    writer.number(hello.to);
    writer.number(static_cast<std::uint8_t>(hello.purpose));
    writer.number(hello.lane);
    writer.number(hello.stripe);
    writer.number(std::uint8_t{0});
    writer.raw(as_text(hello.nonce));
    text += proof_of("caller", pair, pair.called, text);
    return as_bytes<sizeof(TcpHelloBytes)>(text);
}

std::optional<TcpHello> decode(const TcpHelloBytes& bytes) {
    ByteReader reader(unproven(bytes));
    if (reader.number<std::uint64_t>() != magic) return std::nullopt;
    TcpHello hello;
    hello.from = reader.number<std::uint32_t>();
    hello.to = reader.number<std::uint32_t>();
    const auto purpose = reader.number<std::uint8_t>();
    hello.lane = reader.number<std::uint8_t>();
    hello.stripe = reader.number<std::uint8_t>();
    reader.number<std::uint8_t>();
    read_token(reader, hello.nonce);
    if (!reader.finished() || purpose > static_cast<std::uint8_t>(TcpPurpose::lane)) return std::nullopt;
    hello.purpose = static_cast<TcpPurpose>(purpose);
    return hello;
}

bool is_proven(const TcpHelloBytes& bytes, const TcpPair& pair) {
    return same_digest(as_text(bytes).substr(bytes.size() - tcp_proof_bytes),
                       proof_of("caller", pair, pair.called, unproven(bytes)));
}

TcpAnswerBytes answer_to(const TcpHelloBytes& hello, const TcpPair& pair, const TcpToken& nonce) {
    const auto said = cat(as_text(hello), as_text(nonce));
    return as_bytes<sizeof(TcpAnswerBytes)>(cat(as_text(nonce), proof_of("called", pair, pair.caller, said)));
}

bool is_answer_to(const TcpHelloBytes& hello, const TcpPair& pair, const TcpAnswerBytes& answer) {
    TcpToken nonce;
    std::memcpy(nonce.data(), answer.data(), nonce.size());
    return same_digest(as_text(answer), as_text(answer_to(hello, pair, nonce)));
}

std::string record_secret(TcpEnd end, const TcpHelloBytes& hello, const TcpAnswerBytes& answer, const TcpPair& pair) {
    return proof_of(end == TcpEnd::caller ? "records of the caller" : "records of the called", pair, pair.called,
                    cat(as_text(hello), as_text(answer)));
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
    writer.number(static_cast<std::uint8_t>(card.mode));
    writer.raw(as_text(card.token));
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
    card.mode = static_cast<WireMode>(reader.number<std::uint8_t>());
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
