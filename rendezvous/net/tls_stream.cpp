#include "rendezvous/net/tls_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "rendezvous/base/check.h"

namespace muster::rendezvous {

namespace {

// Encrypted ahead of the kernel, for one connection.
constexpr std::size_t sealed_bytes_max = 64 * 1024;

}  // namespace

TlsStream::TlsStream(std::shared_ptr<const PskContext> context, std::shared_ptr<MemoryBudget> memory)
    : channel_(std::move(context)), held_(std::move(memory)) {
    weigh();
}

void TlsStream::weigh() {
    const bool shakes = channel_.state() == PskChannel::State::shaking;
    held_.set((shakes ? PskChannel::busy_bytes : PskChannel::idle_bytes) + unsent_bytes());
}

std::string_view TlsStream::decrypt(std::string_view wire, std::vector<char>& buffer) {
    std::size_t size = 0;
    while (const auto count = channel_.read(wire, std::span(buffer).subspan(size))) {
        size += count;
        MUSTER_CHECK(size < buffer.size(), size);
    }
    weigh();
    return {buffer.data(), size};
}

Outbox::Flush TlsStream::flush(Outbox& plain, int fd, bool finishing) {
    for (;;) {
        while (unsent_bytes() > 0) {
            const auto bytes = channel_.output();
            const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            weigh();
            if (sent < 0) return errno == EAGAIN ? Outbox::Flush::blocked : Outbox::Flush::broken;
            channel_.drop_output(static_cast<std::size_t>(sent));
        }
        weigh();
        const auto state = channel_.state();
        if (state == PskChannel::State::shaking || state == PskChannel::State::failed) return Outbox::Flush::sent;
        if (plain.empty() && finishing) channel_.close();
        if (plain.empty() && unsent_bytes() == 0) return Outbox::Flush::sent;
        for (std::size_t sealed = 0; sealed < sealed_bytes_max && !plain.empty();) {
            const auto piece = plain.front().substr(0, sealed_bytes_max - sealed);
            channel_.write(piece);
            sealed += piece.size();
            plain.drop(piece.size());
        }
    }
}

}  // namespace muster::rendezvous
