#include "rendezvous/wire/c10d/shape.h"

#include <cstring>

#include "rendezvous/base/text/text.h"

namespace muster::c10d {

namespace {

constexpr std::size_t length_bytes = 8;

std::uint64_t read_u64(std::string_view bytes, std::size_t offset) {
    std::uint64_t value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

}  // namespace

void ShapeScanner::start(const Shape& shape, const ShapeLimits& limits, std::size_t begin, std::uint64_t given) {
    shape_ = shape;
    limits_ = &limits;
    offset_ = begin;
    needed_ = begin;
    last_value_offset_ = 0;
    field_ = 0;
    part_ = Part::once;
    rounds_left_ = shape.repeat == Repeat::given ? given : 0;
}

Scan ShapeScanner::scan(std::string_view message) {
    Scan result = Scan::complete;
    while (result == Scan::complete && part_ == Part::once) {
        if (field_ == shape_.once.size()) {
            field_ = 0;
            part_ = Part::count;
        } else {
            result = scan_field(shape_.once[field_], message);
        }
    }
    if (result == Scan::complete && part_ == Part::count) result = scan_count(message);
    while (result == Scan::complete && part_ == Part::each) {
        if (rounds_left_ == 0) {
            part_ = Part::done;
        } else if (field_ == shape_.each.size()) {
            field_ = 0;
            --rounds_left_;
        } else {
            result = scan_field(shape_.each[field_], message);
        }
    }
    if (result != Scan::complete) return result;
    needed_ = offset_;
    return message.size() < offset_ ? Scan::incomplete : Scan::complete;
}

Scan ShapeScanner::scan_count(std::string_view message) {
    part_ = Part::each;
    if (shape_.repeat == Repeat::never || shape_.repeat == Repeat::given) return Scan::complete;
    if (message.size() < offset_ + length_bytes) {
        part_ = Part::count;
        return need(offset_ + length_bytes);
    }
    const auto count = read_u64(message, offset_);
    offset_ += length_bytes;
    if (shape_.repeat == Repeat::at_most_one) {
        rounds_left_ = static_cast<std::int64_t>(count) > 0 ? 1 : 0;
        return Scan::complete;
    }
    if (count > limits_->count_max) return refuse("a count of", count, limits_->count_max);
    rounds_left_ = count;
    return Scan::complete;
}

// Fixed fields are stepped over without being looked at: only lengths must be there to go on.
Scan ShapeScanner::scan_field(char field, std::string_view message) {
    if (field != 'k' && field != 'v') {
        offset_ += static_cast<std::size_t>(field - '0');
        ++field_;
        return Scan::complete;
    }
    if (message.size() < offset_ + length_bytes) return need(offset_ + length_bytes);
    const auto length = read_u64(message, offset_);
    if (field == 'k' && length > limits_->key_bytes_max) return refuse("a key of", length, limits_->key_bytes_max);
    if (field == 'v' && length > limits_->value_bytes_max)
        return refuse("a value of", length, limits_->value_bytes_max);
    offset_ += length_bytes;
    if (field == 'v' && part_ == Part::once && field_ + 1 == shape_.once.size() && shape_.repeat == Repeat::never)
        last_value_offset_ = offset_;
    offset_ += static_cast<std::size_t>(length);
    ++field_;
    if (offset_ > limits_->message_bytes_max) return refuse("a message of", offset_, limits_->message_bytes_max);
    return Scan::complete;
}

Scan ShapeScanner::need(std::size_t size) {
    needed_ = size;
    return Scan::incomplete;
}

Scan ShapeScanner::refuse(std::string_view what, std::uint64_t value, std::uint64_t max) {
    refusal_ = cat(what, " ", value, ", at most ", max, " are accepted");
    return Scan::refused;
}

}  // namespace muster::c10d
