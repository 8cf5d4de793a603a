#include "worker_runtime/pairs/sent_segments.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <filesystem>
#include <system_error>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

SentSegments read_segments(const tcp_info& info, std::size_t length) {
    return {.data = info.tcpi_data_segs_out,
            .again = info.tcpi_total_retrans,
            .twice = info.tcpi_dsack_dups,
            .bytes_per_s = static_cast<std::int64_t>(info.tcpi_delivery_rate),
            .sees_losses = length >= offsetof(tcp_info, tcpi_dsack_dups) + sizeof info.tcpi_dsack_dups};
}

SentByConnection sent_segments() {
    SentByConnection found;
    std::error_code failure;
    for (std::filesystem::directory_iterator at("/proc/self/fd", failure), end; !failure && at != end;
         at.increment(failure)) {
        int fd = -1;
        if (!parse_number(at->path().filename().string(), fd)) continue;
        tcp_info info{};
        std::uint64_t cookie = 0;
        socklen_t length = sizeof info, cookie_length = sizeof cookie;
        if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
            ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &cookie_length) != 0)
            continue;
        found[cookie] = read_segments(info, length);
    }
    return found;
}

SentSegments sent_since(const SentByConnection& before, const SentByConnection& now) {
    SentSegments sum;
    for (const auto& [cookie, sent] : now) {
        const auto found = before.find(cookie);
        const auto earlier = found != before.end() ? found->second : SentSegments{};
        if (sent.data == earlier.data) continue;
        sum.data += sent.data - earlier.data;
        sum.again += sent.again - earlier.again;
        sum.twice += sent.twice - earlier.twice;
        sum.bytes_per_s += sent.bytes_per_s;
        sum.sees_losses = sum.sees_losses && sent.sees_losses;
    }
    return sum;
}

std::string too_many_lost(const SentSegments& sent, int permille) {
    constexpr std::int64_t few = 20;
    const auto lost = sent.lost();
    if (lost < few || lost * 1000 <= permille * sent.data) return {};
    return cat("packets are lost: of ", sent.data, " segments ", lost, " did not arrive");
}

}  // namespace muster::runtime
