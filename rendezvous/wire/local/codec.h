// Encodes and decodes the messages of the agent-worker channel, one per datagram:
//
//   u8 type | fields                         (numbers little-endian; a text is a u16 length and its bytes)
//
//   type  message      fields
//    1    Hello        u32 version, i32 pid, text runtime (<= 255), text token (<= 255), which version 1 may lack;
//                      what follows in a Hello of a version above ours is ignored
//    2    Progress     i64 step
//    3    Section      text name (<= 255)
//    4    Heartbeat    -
//    5    Give         u8 kind, u64 size_bytes, i64 step, i32 rank if the kind is 2 (a copy),
//                      text directory (<= 1024); one descriptor beside the bytes
//    6    AskRanksKey  text token (<= 255)
//    7    CanKeep      u8 can (0 or 1)
//    8    Held         -
//    9    Steps        -; one descriptor beside the bytes
//   65    RoundEnded   text why (<= 1024)
//   66    Notice       i64 step, text why (<= 1024)
//   67    Offer        u8 kind, u64 size_bytes; one descriptor beside the bytes
//   68    RanksKey     32 bytes
//   69    Hold         u64 limit_ms, text why (<= 1024)
//   70    Resumed      u8 count (<= 20), that many texts (<= 512)
//
// Types below 64 are the worker's, the others the agent's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/local/messages.h"

namespace muster::local {

/// The longest message is Resumed; those of version 1 end at 2048. A datagram beyond this is refused unread.
inline constexpr std::size_t datagram_bytes_max = 12 * 1024;
inline constexpr std::size_t name_bytes_max = 255;
inline constexpr std::size_t sentence_bytes_max = 1024;
inline constexpr std::size_t path_bytes_max = 1024;
inline constexpr std::size_t ranks_key_bytes = 32;
inline constexpr std::size_t variables_max = 20;
inline constexpr std::size_t variable_bytes_max = 512;

enum class Sender { worker, agent };

/// One datagram. Texts beyond their limit are cut at their end, and a path is left out.
std::string encode(const Message& message);

/// The message that `sender` wrote. `bad_frame`: it is none, close the channel. `unsupported`: a type that this version
/// does not know; ignore it, a newer peer may say more than we understand.
Result<Message> decode(std::string_view datagram, Sender sender);

/// "RoundEnded", for logs.
std::string_view name(const Message& message);

}  // namespace muster::local
