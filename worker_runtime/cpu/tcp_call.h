// A connection to a rank that listens, from the first try to the answer: who calls says hello, and hears the own token.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/cpu/tcp_hello.h"

namespace muster::runtime {

class TcpCall {
  public:
    /// `own` is the caller's token. Begins at the first dial().
    TcpCall(const TcpHello& hello, const SocketAddress& to, const TcpToken& own)
        : hello_(hello), to_(to), own_token_(own) {}

    [[nodiscard]] const TcpHello& hello() const { return hello_; }
    [[nodiscard]] bool established() const { return state_ == State::established; }
    /// What the last try came to, for messages.
    [[nodiscard]] const std::string& trouble() const { return trouble_; }

    /// When dial() should be called; no_deadline while a try is going on, and when the call stands.
    [[nodiscard]] Instant due() const { return due_; }
    Result<void> dial(Instant now);

    /// What to poll for; nothing to poll while no try is going on.
    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] short events() const;
    /// When it is ready. Most failures are tried again; an error is final: nobody listens there, or somebody else.
    Result<void> serve(Instant now);

    /// Once established.
    FileDescriptor take() { return std::move(socket_); }

  private:
    enum class State { waiting, connecting, greeted, established };
    Result<void> fail(int failure, Instant now);

    TcpHello hello_;
    SocketAddress to_;
    TcpToken own_token_;
    State state_ = State::waiting;
    FileDescriptor socket_;
    Instant due_{};
    TcpToken answer_{};
    std::size_t answer_size_ = 0;
    std::string trouble_ = "not tried yet";
};

/// Does nobody listen at `address` any more? A try to connect tells; it is over when the socket is writable.
class TcpProbe {
  public:
    TcpProbe() = default;
    explicit TcpProbe(Instant due) : due_(due) {}
    [[nodiscard]] Instant due() const { return due_; }
    [[nodiscard]] int fd() const { return socket_.get(); }
    void begin(const SocketAddress& to, Instant now);
    /// True when the connection was refused.
    bool refused(Instant now);

  private:
    FileDescriptor socket_;
    Instant due_{};
};

/// Receives into bytes[size..]; false when the connection has ended.
bool receive_more(const FileDescriptor& socket, std::span<std::byte> bytes, std::size_t& size);

}  // namespace muster::runtime
