// The shape of a c10d message, and a scanner that finds where a message ends.
//
// c10d has no framing: the length of a message follows from its fields. The scanner keeps its position between calls,
// so a request of any size, in chunks of any size, costs one visit per field. (PyTorch's libuv server starts again at
// byte 0 for each chunk, O(n^2).)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::c10d {

/// How often the repeated part of a message occurs.
enum class Repeat : std::uint8_t {
    never,
    counted,      ///< Preceded by a u64 count.
    at_most_one,  ///< Preceded by an i64; present once if it is above 0 (the reply to QUEUE_POP).
    given,        ///< Known from the request: the reply to MULTI_GET has one value per key.
};

/// Fields are letters: '1', '4', '8' = so many bytes; 'k' = u64 length and a key; 'v' = u64 length and a value.
/// First `once`, then the count if there is one, then `each` so many times.
struct Shape {
    std::string_view once;
    Repeat repeat = Repeat::never;
    std::string_view each = {};
};

struct ShapeLimits {
    std::uint64_t key_bytes_max;
    std::uint64_t value_bytes_max;
    std::uint64_t count_max;
    std::uint64_t message_bytes_max;
};

enum class Scan : std::uint8_t {
    complete,    ///< needed() is the size of the message.
    incomplete,  ///< Call again with needed() bytes.
    refused,     ///< A length or count exceeds its limit; refusal() names it.
};

class ShapeScanner {
  public:
    /// Starts on a message whose fields begin at byte `begin`. `given` is the count for Repeat::given.
    void start(const Shape& shape, const ShapeLimits& limits, std::size_t begin, std::uint64_t given = 0);

    /// `message` begins where the message begins and holds what has arrived of it (and perhaps bytes of the next one).
    /// Later calls must show the same bytes with more behind them.
    Scan scan(std::string_view message);

    [[nodiscard]] std::size_t needed() const { return needed_; }
    /// After Scan::incomplete: where the content of the message's last field begins, if all before it is known and that
    /// field is a value; else 0. What lies before this offset is enough to receive the rest elsewhere.
    [[nodiscard]] std::size_t last_value_offset() const { return last_value_offset_; }
    [[nodiscard]] const std::string& refusal() const { return refusal_; }

  private:
    Scan scan_count(std::string_view message);
    Scan scan_field(char field, std::string_view message);
    Scan need(std::size_t size);
    Scan refuse(std::string_view what, std::uint64_t value, std::uint64_t max);

    Shape shape_;
    const ShapeLimits* limits_ = nullptr;
    std::size_t offset_ = 0;  ///< Offset of the next unread field.
    std::size_t needed_ = 0;
    std::size_t last_value_offset_ = 0;
    std::uint64_t rounds_left_ = 0;  ///< Repetitions of shape_.each left, the current one included.
    std::size_t field_ = 0;          ///< Index in shape_.once, then in shape_.each.
    enum class Part : std::uint8_t { once, count, each, done } part_ = Part::done;
    std::string refusal_;
};

}  // namespace muster::c10d
