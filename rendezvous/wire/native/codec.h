// Encodes and decodes messages. A frame is
//
//   u8 0xB5 | u8 type | u32 length | `length` bytes of payload          (all numbers little-endian)
//
// 0xB5 is above the store's request codes and not an ASCII letter, so the first byte selects the daemon's dialect.
// PROTOCOL.md lists the types and their fields; fields.h is the same list as code, one function per message for both
// directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::native {

inline constexpr std::uint8_t frame_magic = 0xB5;
inline constexpr std::size_t frame_header_bytes = 6;

/// Who wrote the bytes: decides which messages are allowed and how long a frame may be.
enum class Sender {
    agent,   ///< Hello ... AgentDied, at most 256 KiB
    daemon,  ///< Pong ... Refused, at most 16 MiB
    peer,    ///< PeerAsk and PeerAnswer, at most 4 KiB
};

/// Appends one whole frame to `out`. Sentences, paths and tails beyond their limit are shortened (a tail at its front,
/// the others at their end); surplus entries of a list are left out. Names (job, host, role) beyond 255 bytes are a
/// bug of the caller: shortened, they would name something else. Reports must have gone through fit_report().
void append_frame(std::string& out, const Message& message);

/// Turns a stream of bytes, in whatever pieces it arrives, into whole validated messages.
class FrameReader {
  public:
    explicit FrameReader(Sender sender) : sender_(sender) {}

    /// Keeps a copy of `bytes` until a message is complete.
    void append(std::string_view bytes) { buffer_.append(bytes); }
    /// Bytes of a message that has not come whole.
    [[nodiscard]] std::size_t held_bytes() const { return buffer_.size() - taken_; }
    /// The buffer's memory, with its unused room. Between messages at most 1 KiB.
    [[nodiscard]] std::size_t heap_bytes() const { return buffer_.capacity(); }

    /// The next message, or nothing when more bytes are needed. An error (bad_frame, limit_exceeded; the context names
    /// the message and what is wrong) is final: the stream cannot be trusted again, and every later call repeats it.
    /// A frame's announced length is judged as soon as its header is there, so a reader that is drained after each
    /// append() never holds more than one frame beside the last piece.
    Result<std::optional<Message>> next();

  private:
    Error refuse(Errc code, std::string context);

    Sender sender_;
    std::string buffer_;
    std::size_t taken_ = 0;  ///< bytes of buffer_ that earlier messages used
    std::optional<Error> failure_;
};

/// The message's own name, e.g. "WorkersFailed", for logs.
std::string_view name(const Message& message);

}  // namespace muster::native
