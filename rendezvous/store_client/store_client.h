// A blocking client of a c10d store: ours, or PyTorch's (libuv or legacy server, 2.1 and later). Plain POSIX sockets.
//
// Keys and values are bytes. PyTorch's TCPStore clients see the same keys ("/" precedes each on the wire).
//
// Every call has a deadline: `timeout` from its start, or the options' default. After the deadline the call fails with
// timed_out. A wait is then cancelled on the server. The call waits up to 1 s for the acknowledgement, and the next
// call waits for the rest, so the client stays usable where the server stands still. After any other failure of the
// connection, every later call returns the first failure. So it does after a request without a wait that timed out, as
// unreachable. Nothing is ever sent twice, because c10d does not report which requests took effect. Limits: keys of 8
// KiB, values of 8 MiB, 131,072 keys per call. A call beyond a limit fails with limit_exceeded before anything is sent
// (a server would close the connection without a reason).
//
// Not thread-safe. A second client is a second connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
    /// Tries every address of the endpoint repeatedly until the deadline; numeric addresses need no DNS. unreachable:
    /// the context lists the attempts per address.
    static Result<StoreClient> connect(const Endpoint& endpoint, const StoreClientOptions& options = {});
    StoreClient(StoreClient&&) noexcept;
    StoreClient& operator=(StoreClient&&) noexcept;
    ~StoreClient();

    using Keys = std::vector<std::string>;
    using Timeout = std::optional<Duration>;

    /// Stores without waiting, because there is no answer, unless a cancellation is not acknowledged yet. Later calls
    /// on this client see the value.
    Result<void> set(std::string_view key, std::string_view value, Timeout timeout = {});
    /// Waits until the key exists. One round trip to our server, two (WAIT, GET) to PyTorch's. The answer to GET may
    /// come up to 30 s after the deadline. If the key is deleted between the two, PyTorch's libuv server returns an
    /// empty value, and its legacy server closes the connection.
    Result<std::string> get(std::string_view key, Timeout timeout = {});
    Result<std::vector<std::string>> multi_get(const Keys& keys, Timeout timeout = {});
    Result<void> wait(const Keys& keys, Timeout timeout = {});
    /// True if all of them exist now.
    Result<bool> check(const Keys& keys, Timeout timeout = {});
    /// Returns the new number. If the value is not a number, the server closes the connection.
    Result<std::int64_t> add(std::string_view key, std::int64_t delta, Timeout timeout = {});
    /// True if the key existed.
    Result<bool> delete_key(std::string_view key, Timeout timeout = {});
    /// Every call in progress and every later one fails with peer_closed. From any thread, while the client lives.
    void interrupt() const;
    /// True for muster's server: get() takes one round trip.
    [[nodiscard]] bool server_is_ours() const;
    /// Returns the numeric address of the server.
    [[nodiscard]] std::string address() const;

  private:
    struct Impl;
    explicit StoreClient(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace muster::rendezvous
