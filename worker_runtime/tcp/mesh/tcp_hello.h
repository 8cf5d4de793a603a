// The first message on every connection of a group, and its answer. The connecting rank names the connection and proves
// that it is a rank; the called one proves the same. Each proof is an HMAC over everything that was said before it, the
// tokens that both ranks published, and a new nonce of the other side, so no proof serves a second time. Its key is
// that of the round's ranks (WireSecurity), and then the store holds no secret. Without one it is the token of the rank
// that the proof is for, which only the store shows. A stray connection is refused, and so is a port that another
// process has now.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/transport/wire_security.h"

namespace muster::runtime {

/// 128 random bits, of a rank or of a connection.
using TcpToken = std::array<std::byte, 16>;
TcpToken random_token();

/// What a connection is for.
enum class TcpPurpose : std::uint8_t {
    control = 0,        ///< Failures.
    transfer_up = 1,    ///< Messages from the lower to the higher rank, and their receipts.
    transfer_down = 2,  ///< Messages from the higher to the lower rank, and their receipts.
    lane = 3,           ///< Collectives.
};

/// Lanes per pair of ranks: one for what a rank has, one for what it makes of others' data (sums, slices of a
/// broadcast). With a lane of their own the latter need no framing, and overtake the former.
inline constexpr int lane_count = 2;

struct TcpHello {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    TcpPurpose purpose = TcpPurpose::control;
    std::uint8_t lane = 0;
    std::uint8_t stripe = 0;
    TcpToken nonce = random_token();  ///< Of this connection.
};

/// Where a rank listens.
struct TcpPlace {
    std::string address;  ///< Numeric.
    std::uint16_t port = 0;
};
/// "10.0.0.1 port 4711".
std::string describe(const TcpPlace& place);

/// What the ends of a connection know of each other before it begins.
struct TcpPair {
    std::string group{};  ///< The communicator's id.
    WireSecurity security{};
    TcpToken caller{}, called{};  ///< What they published.
    /// Where the called rank listens: what the caller dialled, and what the called rank's end of the connection is.
    /// Part of the proofs where the ranks have a key and do not encrypt, so that nobody who has another address passes
    /// the connection on.
    TcpPlace at{};
};

inline constexpr std::size_t tcp_proof_bytes = 32;
/// A hello and its proof.
using TcpHelloBytes = std::array<std::byte, 36 + tcp_proof_bytes>;
TcpHelloBytes encode(const TcpHello& hello, const TcpPair& pair);
/// Nothing for bytes of another protocol or version. The proof is not looked at.
std::optional<TcpHello> decode(const TcpHelloBytes& bytes);
/// True if the caller of this pair said it.
bool is_proven(const TcpHelloBytes& bytes, const TcpPair& pair);

/// A nonce of the called rank and its proof.
using TcpAnswerBytes = std::array<std::byte, sizeof(TcpToken) + tcp_proof_bytes>;
TcpAnswerBytes answer_to(const TcpHelloBytes& hello, const TcpPair& pair, const TcpToken& nonce = random_token());
/// True if the called rank of this pair gave it to this hello.
bool is_answer_to(const TcpHelloBytes& hello, const TcpPair& pair, const TcpAnswerBytes& answer);

enum class TcpEnd { caller, called };
/// 32 bytes that this end's records are made with (record_cipher.h), new for each connection and end.
std::string record_secret(TcpEnd end, const TcpHelloBytes& hello, const TcpAnswerBytes& answer, const TcpPair& pair);

/// What a rank publishes for the others.
struct TcpCard {
    std::vector<TcpPlace> places;  ///< Best first. Not every address is reachable from everywhere.
    std::uint16_t stripes = 1;     ///< Connections per lane. Rank 0's value applies.
    std::int32_t pid = 0;          ///< For messages.
    std::string host;              ///< For messages.
    WireMode mode = WireMode::tokens;
    TcpToken token{};  ///< Keys the proofs towards this rank, unless the ranks have a key: then it is a nonce.
};

std::string encode(const TcpCard& card);
Result<TcpCard> decode_card(std::string_view bytes);

}  // namespace muster::runtime
