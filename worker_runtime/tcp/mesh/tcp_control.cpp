#include "worker_runtime/tcp/mesh/tcp_control.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>

#include "rendezvous/base/text/bytes.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

namespace {

constexpr Duration frame_send_limit = 1s;

constexpr std::uint8_t leaving = 0xff;
constexpr std::uint8_t asking = 0xfe;
constexpr std::uint8_t answering = 0xfd;
constexpr std::uint8_t giving_up = 0xfc;

std::uint8_t code_of(const ControlFrame& frame) {
    switch (frame.kind) {
        case ControlFrame::Kind::left: return leaving;
        case ControlFrame::Kind::gives_up: return giving_up;
        case ControlFrame::Kind::asks: return asking;
        case ControlFrame::Kind::answers: return answering;
        case ControlFrame::Kind::failed: break;
    }
    return static_cast<std::uint8_t>(frame.code);
}

ControlFrame frame_of(std::uint8_t code, std::uint64_t unfinished, std::string_view text) {
    if (code == leaving) return {.kind = ControlFrame::Kind::left, .text = {}, .waits_for = {}};
    if (code == giving_up)
        return {.kind = ControlFrame::Kind::gives_up, .unfinished = unfinished, .text = {}, .waits_for = {}};
    if (code != answering && code != asking)
        return {.code = code <= static_cast<std::uint8_t>(last_errc) ? static_cast<Errc>(code) : Errc::bad_frame,
                .unfinished = unfinished,
                .text = std::string(text),
                .waits_for = {}};
    ControlFrame frame{.kind = code == asking ? ControlFrame::Kind::asks : ControlFrame::Kind::answers,
                       .text = {},
                       .place = static_cast<std::uint32_t>(unfinished >> 32),
                       .waits_for = {}};
    const auto on_route = static_cast<std::uint32_t>(unfinished);
    for (ByteReader ranks(text); ranks.remaining() >= sizeof(std::uint32_t);)
        (frame.route.size() < on_route ? frame.route : frame.waits_for)
            .push_back(static_cast<int>(ranks.number<std::uint32_t>()));
    return frame;
}

}  // namespace

std::string encode(const ControlFrame& frame) {
    std::string ranks;
    ByteWriter list(ranks);
    for (const int rank : frame.route) list.number(static_cast<std::uint32_t>(rank));
    for (const int rank : frame.waits_for) list.number(static_cast<std::uint32_t>(rank));
    const bool lists = frame.kind == ControlFrame::Kind::answers || frame.kind == ControlFrame::Kind::asks;
    const auto& text = lists ? ranks : frame.text;
    const std::uint64_t route = std::uint64_t{frame.place} << 32 | frame.route.size();
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(code_of(frame));
    writer.number(lists ? route : frame.unfinished);
    writer.blob<std::uint16_t>(std::string_view(text).substr(0, failure_text_max));
    return bytes;
}

Instant frame_deadline() {
    return std::chrono::steady_clock::now() + frame_send_limit;
}

void send_frame(const TcpStream& control, const ControlFrame& frame, Instant deadline) {
    if (!control.valid()) return;
    auto bytes = encode(frame);
    for (std::size_t sent = 0; sent < bytes.size();) {
        const iovec part{bytes.data() + sent, bytes.size() - sent};
        const auto more = control.send({&part, 1});
        if (more > 0) sent += static_cast<std::size_t>(more);
        if (more > 0 || errno == EINTR) continue;
        if (errno != EAGAIN) return;
        pollfd room{control.get(), POLLOUT, 0};
        if (::poll(&room, 1, poll_timeout_ms(deadline, std::chrono::steady_clock::now())) != 0) continue;
        ::shutdown(control.get(), SHUT_WR);
        return;
    }
}

std::optional<ControlFrame> take_frame(std::string& bytes) {
    ByteReader reader(bytes);
    const auto code = reader.number<std::uint8_t>();
    const auto unfinished = reader.number<std::uint64_t>();
    const auto length = reader.number<std::uint16_t>();
    if (reader.ok() && length > failure_text_max)
        return ControlFrame{
            .code = Errc::bad_frame, .text = "a control connection carries other bytes", .waits_for = {}};
    const auto text = reader.raw(length);
    if (!reader.ok()) return std::nullopt;
    auto frame = frame_of(code, unfinished, text);
    bytes.erase(0, bytes.size() - reader.remaining());
    return frame;
}

}  // namespace muster::runtime
