// A connection to a listening rank, from the first attempt to the answer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/records/tcp_stream.h"

namespace muster::runtime {

/// `pair` for a connection to this address.
TcpPair at_place(TcpPair pair, const SocketAddress& at);

/// The connection after hello and answer, as this end goes on with it: in records where `pair` encrypts.
TcpStream stream_of(FileDescriptor socket, TcpEnd end, const TcpHelloBytes& hello, const TcpAnswerBytes& answer,
                    const TcpPair& pair);

class TcpCall {
  public:
    /// Begins at the first dial().
    TcpCall(const TcpHello& hello, const SocketAddress& to, const TcpPair& pair)
        : hello_(hello), to_(to), pair_(at_place(pair, to)), words_(encode(hello, pair_)) {}

    [[nodiscard]] const TcpHello& hello() const { return hello_; }
    [[nodiscard]] bool established() const { return state_ == State::established; }
    /// Nobody listens there, or somebody else; it is not tried again.
    [[nodiscard]] bool hopeless() const { return state_ == State::hopeless; }
    /// The connection stands, and whoever is there has not answered yet.
    [[nodiscard]] bool greeted() const { return state_ == State::greeted; }
    [[nodiscard]] const SocketAddress& to() const { return to_; }
    /// "10.0.0.1 port 4711".
    [[nodiscard]] std::string where() const { return describe(TcpPlace{to_.numeric(), to_.port()}); }
    /// What the last try came to, for messages; empty before the first.
    [[nodiscard]] const std::string& trouble() const { return trouble_; }

    /// When dial() should be called; no_deadline while a try is going on, when the call stands, and when it is
    /// hopeless.
    [[nodiscard]] Instant due() const { return due_; }
    /// An error: no descriptor is left.
    Result<void> dial(Instant now);

    /// What to poll for; nothing to poll while no try is going on.
    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] short events() const;
    /// When it is ready. Most failures are tried again.
    void serve(Instant now);

    /// Once established.
    TcpStream take() { return stream_of(std::move(socket_), TcpEnd::caller, words_, answer_, pair_); }

  private:
    enum class State { waiting, connecting, greeted, established, hopeless };
    void fail(int failure, Instant now);
    void give_up(std::string_view why);

    TcpHello hello_;
    SocketAddress to_;
    TcpPair pair_;
    TcpHelloBytes words_;
    State state_ = State::waiting;
    FileDescriptor socket_;
    Instant due_{};
    TcpAnswerBytes answer_{};
    std::size_t answer_size_ = 0;
    std::string trouble_;
};

/// Receives into bytes[size..]; false when the connection has ended.
bool receive_more(const FileDescriptor& socket, std::span<std::byte> bytes, std::size_t& size);

}  // namespace muster::runtime
