// One connection of the asynchronous store client: connecting, queued calls, and the current exchange.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/connect/resolver.h"
#include "rendezvous/store_client/store_client.h"
#include "rendezvous/wire/c10d/store_client_core.h"

namespace muster::rendezvous {

/// A request that owns its bytes, because it is queued longer than the caller's strings exist.
struct OwnedRequest {
    c10d::Operation operation = c10d::Operation::set;
    std::string key, value, expected;
    std::int64_t number = 0;
    std::vector<std::string> keys, values;

    [[nodiscard]] c10d::Request view() const {
        c10d::Request request;
        request.operation = operation;
        request.key = key;
        request.value = value;
        request.expected = expected;
        request.number = number;
        request.keys.assign(keys.begin(), keys.end());
        request.values.assign(values.begin(), values.end());
        return request;
    }
};

/// Exists as long as its client or its coroutine, whichever ends last; stop() ends the coroutine.
class AsyncStoreSession : public std::enable_shared_from_this<AsyncStoreSession> {
  public:
    using ReplyHandler = std::function<void(Result<c10d::Reply>)>;
    using ConnectedHandler = std::function<void(Result<void>)>;

    AsyncStoreSession(boost::asio::io_context& io, Endpoint endpoint, StoreClientOptions options)
        : io_(io),
          endpoint_(std::move(endpoint)),
          options_(options),
          resolver_(io),
          socket_(io),
          watchdog_(io),
          wake_(io) {}

    void start() { boost::asio::co_spawn(io_, run(shared_from_this()), boost::asio::detached); }
    void stop() {
        stopped_ = true;
        resolver_.stop();
        calls_.clear();
        connected_handlers_.clear();
        boost::system::error_code ignored;
        socket_.close(ignored);
        watchdog_.cancel();
        wake_.cancel();
    }

    void call(OwnedRequest request, std::optional<Duration> timeout, ReplyHandler handler) {
        const Instant deadline = std::chrono::steady_clock::now() + timeout.value_or(options_.timeout);
        calls_.push_back({std::move(request), deadline, std::move(handler)});
        wake_.cancel();
    }
    void when_connected(ConnectedHandler handler) {
        connected_handlers_.push_back(std::move(handler));
        wake_.cancel();
    }
    [[nodiscard]] bool server_is_ours() const { return core_.server_is_ours(); }

  private:
    using Progress = StoreClientCore::Progress;
    struct Call {
        OwnedRequest request;
        Instant deadline;
        ReplyHandler handler;
    };

    static boost::asio::awaitable<void> run(std::shared_ptr<AsyncStoreSession> self);
    boost::asio::awaitable<void> connect();
    boost::asio::awaitable<Result<Resolver::Addresses>> resolve(Instant deadline);
    boost::asio::awaitable<Result<void>> greet(boost::asio::ip::tcp::endpoint address,
                                               StoreClientCore::Greeting greeting, Instant deadline);
    boost::asio::awaitable<void> serve(Call& call);
    boost::asio::awaitable<void> exchange(std::string bytes, Instant deadline);
    boost::asio::awaitable<void> idle(Instant until);
    /// Cancels the socket's current operation at `deadline`, unless disarmed before.
    void arm(Instant deadline);
    void disarm() { ++watch_, watchdog_.cancel(); }
    void report_connected();

    boost::asio::io_context& io_;
    const Endpoint endpoint_;
    const StoreClientOptions options_;
    Resolver resolver_;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer watchdog_;
    boost::asio::steady_timer wake_;
    std::uint64_t watch_ = 0;
    StoreClientCore core_;
    std::optional<Error> failure_;
    std::deque<Call> calls_;
    std::vector<ConnectedHandler> connected_handlers_;
    std::array<char, 64 * 1024> buffer_{};
    bool stopped_ = false;
};

}  // namespace muster::rendezvous
