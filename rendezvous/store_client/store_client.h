// A blocking client of a c10d store: ours, or PyTorch's (libuv or legacy server, 2.1 and later). Plain POSIX sockets.
//
// Keys and values are bytes. PyTorch's TCPStore clients see the same keys ("/" precedes each on the wire).
//
// Every call has a deadline: `timeout` from its start, or the options' default. After the deadline the call fails with
// timed_out; a wait is cancelled on the server, and the client stays usable. After any other failure of the connection
// every later call returns the first failure: c10d does not tell which requests took effect, so nothing is ever sent
// twice. Limits: keys of 8 KiB, values of 8 MiB, 131,072 keys a call. A call beyond a limit fails with limit_exceeded
// before anything is sent (a server would just close).
//
// Not thread-safe. A second client is a second connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

struct StoreClientOptions {
    Duration connect_timeout = 300s;  ///< Limit of connect(), all attempts together. PyTorch's default.
    Duration timeout = 300s;          ///< Limit of every call without its own. PyTorch's default.
    Duration attempt_timeout = 5s;    ///< Limit for one address: connecting and the handshake.
    Duration backoff_min = 20ms;      ///< Wait after a failed attempt. Doubles up to backoff_max, with 25 % jitter.
    Duration backoff_max = 500ms;
};

class StoreClient {
  public:
    /// Tries every address of the endpoint (numeric ones without asking DNS), again and again until the deadline.
    /// unreachable: what was tried, per address.
    static Result<StoreClient> connect(const Endpoint& endpoint, const StoreClientOptions& options = {});
    StoreClient(StoreClient&&) noexcept;
    StoreClient& operator=(StoreClient&&) noexcept;
    ~StoreClient();

    using Keys = std::vector<std::string>;
    using Pairs = std::vector<std::pair<std::string, std::string>>;
    using Timeout = std::optional<Duration>;

    /// Stores without waiting for an answer (there is none): a later call on this client sees it.
    Result<void> set(std::string_view key, std::string_view value, Timeout timeout = {});
    Result<void> multi_set(const Pairs& pairs, Timeout timeout = {});
    Result<void> append(std::string_view key, std::string_view value, Timeout timeout = {});
    /// Waits until the key exists. One trip to our server, two (WAIT, GET) to PyTorch's. Where the key is deleted in
    /// between, PyTorch's libuv server gives an empty value and its legacy server ends the connection.
    Result<std::string> get(std::string_view key, Timeout timeout = {});
    Result<std::vector<std::string>> multi_get(const Keys& keys, Timeout timeout = {});
    Result<void> wait(const Keys& keys, Timeout timeout = {});
    /// Do all of them exist now?
    Result<bool> check(const Keys& keys, Timeout timeout = {});
    /// The new number. A value that is not a number makes the server close the connection.
    Result<std::int64_t> add(std::string_view key, std::int64_t delta, Timeout timeout = {});
    /// The value afterwards; `expected` where the key is missing and `expected` is not empty.
    Result<std::string> compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                    Timeout timeout = {});
    /// Was there one?
    Result<bool> delete_key(std::string_view key, Timeout timeout = {});
    /// Those of every client, PyTorch's worker counter included.
    Result<std::int64_t> num_keys(Timeout timeout = {});

    // Operations that not every PyTorch server knows (queues 2.8, list 2.11, barrier 2.12). The first use of each kind
    // asks a server that is not ours over a connection of its own, because an unknown operation costs the connection.
    // `unsupported` where the server does not have it.
    Result<void> queue_push(std::string_view key, std::string_view value, Timeout timeout = {});
    /// The head, at once; nothing when the queue is empty.
    Result<std::optional<std::string>> queue_pop(std::string_view key, Timeout timeout = {});
    Result<std::int64_t> queue_length(std::string_view key, Timeout timeout = {});
    /// Of the keys that begin with "/", without it.
    Result<std::vector<std::string>> list_keys(Timeout timeout = {});
    /// Returns when `world` clients have called it with this key (never used for anything else). One trip where the
    /// server has BARRIER; elsewhere ADD, and a wait for the key "<key>/done", so all clients of a barrier must agree
    /// on their server, which they do. A call that timed out stays counted.
    Result<void> barrier(std::string_view key, std::int64_t world, Timeout timeout = {});

    /// It answers in one trip and knows every operation.
    [[nodiscard]] bool server_is_ours() const;
    /// The numeric address that answered.
    [[nodiscard]] std::string address() const;

  private:
    struct Impl;
    explicit StoreClient(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace muster::rendezvous
