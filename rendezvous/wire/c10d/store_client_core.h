// A store client's side of one connection, pure: which bytes to send, when a reply is complete, and how a wait is
// cancelled.
//
// c10d answers strictly in order and without request numbers, so one exchange runs at a time. The caller has the queue,
// the socket and the clock. The calls of a connection:
//
//   open()        the first bytes: VALIDATE, PING, and a CHECK that only our server answers with "ready"
//   request()     the bytes of one request; done at once if it has no answer
//   receive()     received bytes; done when the reply is complete
//   timed_out()   the deadline passed: CANCEL_WAIT for a wait, the end of the connection for anything else. The server
//                 may acknowledge CANCEL_WAIT late, but before the next request()
//
// After Progress::failed the connection is unusable: close it; error() has the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/wire/c10d/reply.h"
#include "rendezvous/wire/c10d/request.h"

namespace muster::rendezvous {

/// limit_exceeded when the request breaks c10d's limits: a server would answer by closing, which is harder to
/// understand.
Result<void> check_limits(const c10d::Request& request);

class StoreClientCore {
  public:
    /// PyTorch servers before 2.5 close a connection that sends PING.
    enum class Greeting { with_ping, without_ping };

    enum class Progress {
        more,     ///< The reply is incomplete.
        done,     ///< reply() is valid.
        expired,  ///< The wait was cancelled. The connection remains usable.
        failed,   ///< error() has the reason.
    };

    /// The bytes that open a connection; send them in one write, because a libuv server that sees VALIDATE in two
    /// pieces closes. The exchange is done when receive() says so; server_is_ours() is known then.
    std::string open(Greeting greeting, std::uint32_t nonce);

    /// Begins an exchange (none may be running) and returns what to send. Afterwards progress() is `done` for requests
    /// without a reply.
    std::string request(const c10d::Request& request);
    [[nodiscard]] Progress progress() const { return progress_; }

    /// Takes what came from the server. Bytes nobody asked for fail the connection.
    Progress receive(std::string_view bytes);

    /// The deadline of the exchange has passed. For WAIT, BARRIER and WAIT_GET: what to send so that the server forgets
    /// the wait; go on with receive() until `expired`, which may take until the next request(). Empty: it failed, or
    /// the server has not acknowledged that yet (is_cancelling).
    std::string timed_out();
    /// CANCEL_WAIT was sent, and is not acknowledged.
    [[nodiscard]] bool is_cancelling() const { return state_ == State::cancelling || state_ == State::late_stop; }

    /// The connection ended.
    void closed(std::string_view why);

    /// Not answered within the deadline, or given up while it ran: the connection is out of step for good.
    void fail(Error error);

    [[nodiscard]] c10d::Reply& reply() { return reply_; }
    [[nodiscard]] const Error& error() const { return *error_; }
    [[nodiscard]] bool server_is_ours() const { return server_is_ours_; }

  private:
    enum class State {
        idle,
        pinging,  ///< Waits for the answer to PING, then for that to the probing CHECK.
        probing,  ///< Waits for the answer to the probing CHECK.
        replying,
        cancelling,  ///< CANCEL_WAIT was sent.
        late_stop,   ///< The wait's own answer arrived first; the answer to CANCEL_WAIT follows.
    };

    void expect(State state, c10d::Operation operation, std::size_t key_count);
    Progress advance();

    State state_ = State::idle;
    Progress progress_ = Progress::done;
    c10d::Operation operation_ = c10d::Operation::validate;  ///< Operation whose answer is awaited.
    c10d::Operation waited_ = c10d::Operation::wait;         ///< The wait that is being cancelled.
    std::size_t key_count_ = 0;
    std::uint32_t nonce_ = 0;
    bool server_is_ours_ = false;
    c10d::ReplyScanner scanner_;
    c10d::Reply reply_;
    std::string input_;  ///< Bytes of an incomplete reply.
    std::optional<Error> error_;
};

}  // namespace muster::rendezvous
