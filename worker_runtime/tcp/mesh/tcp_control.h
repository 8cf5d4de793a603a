// What ranks tell each other over their control connections, which carry nothing else: that the group has failed, that
// a rank leaves in order, and, at a deadline, whom a rank waits for itself.
//
// A rank at its deadline says first which collective it has given up, so that nobody passes it meanwhile.
//
//   code u8 | collective u64 | length u16 | text
//
// A failure has its Errc for code, and the collective that its rank has given up (0: none). An answer's text is the
// ranks that are waited for, u32 each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct ControlFrame {
    enum class Kind { failed, left, gives_up, asks, answers };
    Kind kind = Kind::failed;
    Errc code = Errc::io;          ///< failed
    std::uint64_t unfinished = 0;  ///< failed, gives_up
    std::string text;              ///< failed; cut off at failure_text_max
    std::vector<int> waits_for;    ///< answers; none: it waits for nobody. The first 250 of more
};

std::string encode(const ControlFrame& frame);

/// Takes the first frame off `bytes`; nothing while its rest is on its way. Bytes that are no frame are a failure with
/// Errc::bad_frame.
std::optional<ControlFrame> take_frame(std::string& bytes);

}  // namespace muster::runtime
