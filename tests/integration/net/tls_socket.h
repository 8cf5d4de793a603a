// A blocking TLS client of a job's key, without any protocol inside.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/secret/control_key.h"
#include "rendezvous/tls/psk_channel.h"
#include "tests/integration/net/plain_socket.h"

namespace muster {

class TlsSocket {
  public:
    TlsSocket(PlainSocket socket, const rendezvous::JobKey& key, const std::string& job)
        : TlsSocket(std::move(socket), rendezvous::control_key(key, job)) {}
    /// By another key and its name.
    TlsSocket(PlainSocket socket, rendezvous::ControlKey key)
        : socket_(std::move(socket)),
          control_(std::move(key)),
          channel_(rendezvous::PskContext::client(control_.identity, control_.key)) {
        using State = rendezvous::PskChannel::State;
        while (channel_.state() == State::shaking && take()) {
        }
        flush();
    }

    [[nodiscard]] rendezvous::PskChannel& channel() { return channel_; }
    [[nodiscard]] bool is_open() const { return channel_.state() == rendezvous::PskChannel::State::open; }
    void send(std::string_view plain) {
        channel_.write(plain);
        flush();
    }
    /// Exactly `count` plain bytes, or what came before the end or the deadline.
    std::string receive(std::size_t count) {
        while (plain_.size() < count && take()) {
        }
        return std::exchange(plain_, plain_.substr(std::min(count, plain_.size()))).substr(0, count);
    }
    std::string receive_all() { return receive(std::string::npos); }

  private:
    void flush() {
        socket_.send(channel_.output());
        channel_.drop_output(channel_.output().size());
    }
    /// False: the end.
    bool take() {
        flush();
        std::array<char, 16'384> bytes;
        const auto size = ::recv(socket_.fd(), bytes.data(), bytes.size(), 0);
        if (size <= 0) return false;
        std::string_view wire(bytes.data(), static_cast<std::size_t>(size));
        std::array<char, 16'384> place;
        while (const auto count = channel_.read(wire, place)) plain_.append(place.data(), count);
        return channel_.state() != rendezvous::PskChannel::State::failed;
    }

    PlainSocket socket_;
    rendezvous::ControlKey control_;
    rendezvous::PskChannel channel_;
    std::string plain_;
};

}  // namespace muster
