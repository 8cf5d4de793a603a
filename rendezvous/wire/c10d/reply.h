// A c10d reply as a client reads it. The server writes replies with the append_ functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/wire/c10d/operation.h"
#include "rendezvous/wire/c10d/request.h"
#include "rendezvous/wire/c10d/shape.h"

namespace muster::c10d {

// The one-byte replies.
inline constexpr char ready = 0;          ///< CHECK: all keys exist
inline constexpr char not_ready = 1;      ///< CHECK
inline constexpr char stop_waiting = 0;   ///< WAIT, BARRIER, WAIT_GET: the keys exist.
inline constexpr char wait_canceled = 1;  ///< Answer to CANCEL_WAIT.
inline constexpr char key_watched = 3;    ///< WATCH_KEY, older family

struct Reply {
    std::uint8_t flag = 0;    ///< CHECK, WAIT, BARRIER, CANCEL_WAIT, WATCH_KEY, WAIT_GET
    std::int64_t number = 0;  ///< ADD, GETNUMKEYS, DELETE_KEY, QUEUE_LEN, QUEUE_POP (length before the pop)
    std::uint32_t nonce = 0;  ///< PING
    /// GET, COMPARE_SET: one; MULTI_GET, WAIT_GET: one a key; QUEUE_POP: 0 or 1; LIST_KEYS
    std::vector<std::string> blobs;
};

/// Finds the end of the reply to one request.
class ReplyScanner {
  public:
    /// Begins the reply to `operation`; `key_count` is that of the request (MULTI_GET, WAIT_GET).
    void start(Operation operation, std::size_t key_count);
    /// As ShapeScanner::scan.
    Scan scan(std::string_view bytes) { return scanner_.scan(bytes); }
    [[nodiscard]] std::size_t needed() const { return scanner_.needed(); }
    [[nodiscard]] const std::string& refusal() const { return scanner_.refusal(); }

  private:
    ShapeScanner scanner_;
};

/// Reads the reply that `bytes` hold. False when they are not exactly one reply.
[[nodiscard]] bool decode_reply(Operation operation, std::size_t key_count, std::string_view bytes, Reply& reply);

}  // namespace muster::c10d
