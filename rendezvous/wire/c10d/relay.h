// Many clients of a store on one connection: what an agent's relay and our store exchange (C10D.md, "Relay"). Pure.
//
// Each frame carries a piece of one client's stream, in either direction. The bytes inside are those that the client
// and the store would exchange without a relay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::c10d {

/// The u32 after VALIDATE that begins a relay's connection. As the key length of the older family's SET it is too
/// large, so no client begins with it.
inline constexpr std::uint32_t relay_magic = 0x59414C52;

/// The first bytes of a relay.
std::string relay_handshake();

/// Appends the header of a frame: `size` bytes of `client` follow. 0: the client's connection is over.
void append_relay_header(std::string& out, std::uint32_t client, std::uint32_t size);

/// Cuts a stream of frames into pieces, without a copy of what is in them.
class RelayReader {
  public:
    struct Piece {
        std::uint32_t client = 0;
        std::string_view bytes;  ///< Empty: the client's connection is over.
    };
    /// Takes the next piece off the front of `bytes`. Empty: all was taken, and no piece is complete.
    std::optional<Piece> next(std::string_view& bytes);

  private:
    std::string header_;  ///< The part of the next header that has come.
    std::uint32_t client_ = 0;
    std::uint32_t left_ = 0;  ///< Bytes of the current frame that are still to come.
};

}  // namespace muster::c10d
