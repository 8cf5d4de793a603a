// The messages on the control connections between ranks: the group has failed; a rank leaves in order; and, at a
// deadline, which ranks a rank waits for.
//
// A rank at its deadline first announces which collective it has given up, so that no rank completes it meanwhile.
//
//   code u8 | collective u64 | length u16 | text
//
// For a failure, code is its Errc and collective the one that its rank has given up (0: none). The text of an answer is
// the awaited ranks, u32 each.
//
// In a large group a question for a rank without a connection travels over others, and its answer returns the same way.
// Such a frame's text begins with its route, u32 each. Its collective is the length of the route, and in the upper half
// the place on it of the rank that receives the frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/records/tcp_stream.h"

namespace muster::runtime {

struct ControlFrame {
    enum class Kind { failed, left, gives_up, asks, answers };
    Kind kind = Kind::failed;
    Errc code = Errc::io;          ///< Set in `failed`.
    std::uint64_t unfinished = 0;  ///< Set in `failed` and `gives_up`.
    std::string text;              ///< Set in `failed`. Truncated to failure_text_max.
    std::vector<int> route{};      ///< Set in questions and answers over other ranks: from the sender to the receiver.
    std::uint32_t place = 0;       ///< On the route: the rank that has this frame.
    std::vector<int> waits_for;    ///< Set in answers: the first 250 awaited ranks. Empty: it waits for none.
};

/// A longer route is not passed on.
inline constexpr std::size_t route_ranks_max = 100;

std::string encode(const ControlFrame& frame);

/// For a peer's kernel that takes no more; its process may be stopped. 1 s from now.
Instant frame_deadline();

/// These connections carry little, so a frame nearly always fits at once. It waits for room until `deadline`, which
/// frames for several peers have in common; then it ends its
/// direction of the connection, because nothing may follow a part of a frame. Nothing happens without a connection. One
/// thread at a time.
void send_frame(const TcpStream& control, const ControlFrame& frame, Instant deadline = frame_deadline());

/// Takes the first frame off `bytes`; nothing while its rest is on its way. Bytes that are no frame are a failure with
/// Errc::bad_frame.
std::optional<ControlFrame> take_frame(std::string& bytes);

}  // namespace muster::runtime
