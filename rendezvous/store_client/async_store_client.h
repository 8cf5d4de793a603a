// The store client for programs with an Asio loop: the operations of store_client.h, answered through handlers.
//
// Calls run one after another in the order in which they were made, because c10d answers in order: a get() that waits
// for its key holds up the calls behind it (use a second client for long waits). Every call has a deadline, counted
// from when it was made; one that has passed when its turn comes ends without a word to the server.
// Failures are those of StoreClient: timed_out leaves the client usable, anything else on the wire is the end of it.
//
// Everything happens on the io_context's thread, handlers included, and none is called from within the call that takes
// it. After the client is destroyed no handler is called any more.
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

    /// Begins to connect at once; calls made meanwhile wait for it. `io` must outlive the client.
    AsyncStoreClient(boost::asio::io_context& io, Endpoint endpoint, StoreClientOptions options = {});
    ~AsyncStoreClient();
    AsyncStoreClient(const AsyncStoreClient&) = delete;
    AsyncStoreClient& operator=(const AsyncStoreClient&) = delete;

    /// Called when the connection stands, or when the deadline for it has passed (unreachable).
    void when_connected(Handler<void> handler);

    /// The handler hears when the bytes have been written: there is no answer.
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
    // Only where server_is_ours(); `unsupported` elsewhere (StoreClient can ask PyTorch's servers for them).
    void queue_push(std::string_view key, std::string_view value, Handler<void> handler, Timeout timeout = {});
    void queue_pop(std::string_view key, Handler<std::optional<std::string>> handler, Timeout timeout = {});
    void barrier(std::string_view key, std::int64_t world, Handler<void> handler, Timeout timeout = {});

    [[nodiscard]] bool server_is_ours() const;

  private:
    std::shared_ptr<AsyncStoreSession> session_;
};

}  // namespace muster::rendezvous
