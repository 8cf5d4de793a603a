#include "rendezvous/dialects/metrics_answer.h"

#include <algorithm>
#include <boost/beast/zlib/deflate_stream.hpp>
#include <boost/crc.hpp>
#include <cctype>
#include <string_view>
#include <utility>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

namespace zlib = boost::beast::zlib;

/// RFC 9110, 12.5.3. A weight of 0 refuses it.
bool accepts_gzip(std::string_view accept_encoding) {
    return std::ranges::any_of(split(accept_encoding, ','), [](std::string_view one) {
        std::string coding;
        for (const unsigned char letter : one)
            if (std::isspace(letter) == 0) coding += static_cast<char>(std::tolower(letter));
        const auto weight = coding.find(";q=");
        const bool is_refused = weight != coding.npos && coding.find_first_not_of("0.", weight + 3) == coding.npos;
        return coding.substr(0, weight) == "gzip" && !is_refused;
    });
}

/// RFC 1952, at the fastest level. Empty if that failed.
std::string gzipped(std::string_view text) {
    constexpr int fastest = 1, window_bits = 15, memory_level = 8;
    std::string out("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10);  // deflate, no name, no time, fastest, from anywhere
    const auto begin = out.size();
    zlib::deflate_stream deflate;
    deflate.reset(fastest, window_bits, memory_level, zlib::Strategy::normal);
    out.resize(begin + deflate.upper_bound(text.size()));
    zlib::z_params state;
    state.next_in = text.data();
    state.avail_in = text.size();
    state.next_out = out.data() + begin;
    state.avail_out = out.size() - begin;
    boost::system::error_code result;
    deflate.write(state, zlib::Flush::finish, result);
    if (result != zlib::error::end_of_stream) return {};
    out.resize(begin + state.total_out);
    boost::crc_32_type sum;
    sum.process_bytes(text.data(), text.size());
    ByteWriter writer(out);
    writer.number(static_cast<std::uint32_t>(sum.checksum()));
    writer.number(static_cast<std::uint32_t>(text.size()));
    return out;
}

}  // namespace

HttpPage metrics_answer(const HttpRequest& request, const std::function<std::string(MetricsFormat)>& page) {
    const auto format = metrics_format(request.accept);
    HttpPage answer{.type = metrics_content_type(format), .body = page(format)};
    if (answer.body.size() <= plain_metrics_bytes_max || !accepts_gzip(request.accept_encoding)) return answer;
    if (auto small = gzipped(answer.body); !small.empty()) {
        answer.body = std::move(small);
        answer.encoding = "gzip";
    }
    return answer;
}

}  // namespace muster::rendezvous
