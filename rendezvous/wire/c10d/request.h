// A c10d request, its parser and its encoder. Used by the server, the client and the fuzzers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/wire/c10d/operation.h"
#include "rendezvous/wire/c10d/shape.h"

namespace muster::c10d {

/// One request of any operation; the fields that its operation does not have are empty. The views point into the bytes
/// it was decoded from. Meant to be used again and again: the vectors keep their memory.
struct Request {
    Operation operation = Operation::validate;
    std::string_view key;                  ///< Key of every operation with a single key.
    std::string_view value;                ///< SET, APPEND, QUEUE_PUSH; COMPARE_SET's desired value
    std::string_view expected;             ///< COMPARE_SET
    std::int64_t number = 0;               ///< ADD's delta, BARRIER's world
    std::uint32_t nonce = 0;               ///< PING's nonce, VALIDATE's magic
    std::vector<std::string_view> keys;    ///< CHECK, WAIT, MULTI_GET, MULTI_SET, WAIT_GET
    std::vector<std::string_view> values;  ///< MULTI_SET, as many as keys
};

/// Finds the end of a request in a stream of bytes. Refuses unknown operations and lengths beyond limits.h.
class RequestScanner {
  public:
    void set_family(Family family) { family_ = family; }
    [[nodiscard]] Family family() const { return family_; }

    /// As ShapeScanner::scan; the first call after a complete request begins the next one.
    Scan scan(std::string_view bytes);
    /// The request was completed outside of what scan() has seen: all needed() bytes are there, the last value apart.
    void finish() { begun_ = false; }
    [[nodiscard]] std::size_t needed() const { return scanner_.needed(); }
    [[nodiscard]] std::size_t last_value_offset() const { return scanner_.last_value_offset(); }
    /// After Scan::refused: "SET: a value of 9437184, at most 8388608 are accepted", "unknown operation 99".
    [[nodiscard]] const std::string& refusal() const { return refusal_; }

  private:
    Family family_ = Family::newer;
    bool begun_ = false;
    Operation operation_ = Operation::validate;
    ShapeScanner scanner_;
    std::string refusal_;
};

/// Reads the request that `head` holds. When `tail` is not null its last value is `*tail`, received apart from the
/// rest, and `head` ends after that value's length. False when the bytes are not exactly one request.
[[nodiscard]] bool decode_request(Family family, std::string_view head, const std::string* tail, Request& request);

/// Appends the request. The operation must exist in the family (MUSTER_CHECK) and the sizes be within the limits.
void encode_request(Family family, const Request& request, std::string& out);

}  // namespace muster::c10d
