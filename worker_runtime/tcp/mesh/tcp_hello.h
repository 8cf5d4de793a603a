// The first message on every connection of a group. The connecting rank names the connection and sends the token of the
// rank that it wants to reach; that rank answers with the caller's token. Both tokens come from the exchange, so each
// side knows that the other belongs to this group. A stray connection is refused, and so is a port that another process
// has now.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// 128 random bits.
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
    TcpToken token{};  ///< Token of the called rank.
};

using TcpHelloBytes = std::array<std::byte, 40>;
TcpHelloBytes encode(const TcpHello& hello);
/// Nothing for bytes of another protocol or version.
std::optional<TcpHello> decode(const TcpHelloBytes& bytes);

/// Where a rank listens.
struct TcpPlace {
    std::string address;  ///< Numeric.
    std::uint16_t port = 0;
};
/// "10.0.0.1 port 4711".
std::string describe(const TcpPlace& place);

/// What a rank publishes for the others.
struct TcpCard {
    std::vector<TcpPlace> places;  ///< Best first. Not every address is reachable from everywhere.
    std::uint16_t stripes = 1;     ///< Connections per lane. Rank 0's value applies.
    std::int32_t pid = 0;          ///< For messages.
    std::string host;              ///< For messages.
    TcpToken token{};
};

std::string encode(const TcpCard& card);
Result<TcpCard> decode_card(std::string_view bytes);

}  // namespace muster::runtime
