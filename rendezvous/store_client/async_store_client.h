// The store client for programs with an Asio loop: the operations of store_client.h with handlers.
//
// Calls run one after another, in the order in which they were made, because c10d answers in order. A get() that waits
// for its key delays all later calls (use a second client for long waits). The deadline of a call counts from the call;
// if it passes before the call's turn, nothing is sent. Failures are those of StoreClient: timed_out leaves the client
// usable, any other failure of the connection ends it.
//
// All code, also the handlers, runs on the io_context's thread. No handler runs inside the call that receives it, or
// after the client is destroyed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/store_client/store_client.h"

namespace muster::rendezvous {

class AsyncStoreSession;

class AsyncStoreClient {
  public:
    template <class T>
    using Handler = std::function<void(Result<T>)>;
    using Keys = StoreClient::Keys;
    using Pairs = StoreClient::Pairs;
    using Timeout = StoreClient::Timeout;

    /// Starts to connect; calls made before the connection exists wait for it. `io` must outlive the client.
    AsyncStoreClient(boost::asio::io_context& io, Endpoint endpoint, StoreClientOptions options = {});
    ~AsyncStoreClient();
    AsyncStoreClient(const AsyncStoreClient&) = delete;
    AsyncStoreClient& operator=(const AsyncStoreClient&) = delete;

    /// Calls `handler` when connected, or with unreachable after the connect deadline.
    void when_connected(Handler<void> handler);

    /// The handler is called when the bytes have been written: there is no answer.
    void set(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout = {});
    void multi_set(const Pairs& pairs, Handler<void> handler, Timeout timeout = {});
    void append(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout = {});
    void get(std::string_view key, Handler<std::string> handler, Timeout timeout = {});
    void multi_get(const Keys& keys, Handler<std::vector<std::string>> handler, Timeout timeout = {});
    void wait(const Keys& keys, Handler<void> handler, Timeout timeout = {});
    void check(const Keys& keys, Handler<bool> handler, Timeout timeout = {});
    void add(std::string_view key, std::int64_t delta, Handler<std::int64_t> handler, Timeout timeout = {});
    void compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                     Handler<std::string> handler, Timeout timeout = {});
    void delete_key(std::string_view key, Handler<bool> handler, Timeout timeout = {});
    void num_keys(Handler<std::int64_t> handler, Timeout timeout = {});
    // Supported only if server_is_ours(); else the error is `unsupported` (StoreClient can probe PyTorch's servers).
    void queue_push(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout = {});
    void queue_pop(std::string_view key, Handler<std::optional<std::string>> handler, Timeout timeout = {});
    void barrier(std::string_view key, std::int64_t world, Handler<void> handler, Timeout timeout = {});

    [[nodiscard]] bool server_is_ours() const;

  private:
    std::shared_ptr<AsyncStoreSession> session_;
};

}  // namespace muster::rendezvous
