// What the TCP connections of this process have sent, and how much of it was lost on the way.
//
// A segment that was sent again was not always lost. A busy host delivers segments in another order or answers late, so
// that TCP sends some again for nothing. The receiver then has them twice and reports that (D-SACK, RFC 2883). Only
// repeats without such a report are losses (RFC 3708).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

struct tcp_info;  // <linux/tcp.h>

namespace muster::runtime {

struct SentSegments {
    std::int64_t data = 0;         ///< Segments with data, repeats included.
    std::int64_t again = 0;        ///< Repeats.
    std::int64_t twice = 0;        ///< Repeats that the receiver reported to have twice.
    std::int64_t bytes_per_s = 0;  ///< The rate at which the receiver's kernel acknowledged the last ones.

    /// False where the kernel (Linux before 4.19) does not tell `twice`, so that repeats say nothing of losses.
    bool sees_losses = true;

    [[nodiscard]] std::int64_t lost() const { return sees_losses ? again - twice : 0; }
};

/// By the kernel's cookie, which no other connection gets.
using SentByConnection = std::map<std::uint64_t, SentSegments>;

/// `length` bytes of the answer of TCP_INFO: an older kernel answers less.
SentSegments read_segments(const tcp_info& info, std::size_t length);

/// Of all connections that are open now; none before Linux 4.12, which has no cookies. Other processes of the host do
/// not count.
SentByConnection sent_segments();

/// Between the two times; the rate is the sum over the connections that sent something. A connection that closed
/// meanwhile does not count.
SentSegments sent_since(const SentByConnection& before, const SentByConnection& now);

/// One sentence. Empty: at most `permille` of 1,000 segments, or too few to judge.
std::string too_many_lost(const SentSegments& sent, int permille);

}  // namespace muster::runtime
