// The two visitors of fields.h: one appends a struct's fields to a string, the other reads and validates them. Used for
// frames (codec.cpp), a daemon's records of its jobs (rounds/job_record.cpp) and the datagrams of an agent and its
// guardian (agent/process/guardian_wire.cpp) only.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/wire/native/fields.h"

namespace muster::native {

class Encoder {
  public:
    explicit Encoder(std::string& out) : out_(out) {}

    void operator()(const auto&... values) { (put(values), ...); }
    template <class Enum>
    void choice(Enum value, Enum) {
        out_.number(static_cast<std::uint8_t>(value));
    }
    void bytes(std::string_view value, std::size_t max) {
        MUSTER_CHECK(value.size() <= max, value.size());
        out_.blob<std::uint32_t>(value);
    }
    /// What the decoder would refuse is escaped.
    void text(std::string_view value, std::size_t max, Keep keep) {
        std::string clean;
        if (!is_printable(value)) value = clean = printable(value);
        out_.blob<std::uint32_t>(keep == Keep::front ? front_of(value, max) : back_of(value, max));
    }
    void name(std::string_view value) {
        MUSTER_CHECK(value.size() <= name_bytes_max, value);
        out_.blob<std::uint32_t>(value);
    }
    void line(std::string_view value, std::size_t max = sentence_bytes_max) {
        text(is_printable_line(value) ? std::string(value) : printable_line(value), max, Keep::front);
    }
    void sentence(std::string_view value) { text(value, sentence_bytes_max, Keep::front); }
    void path(std::string_view value) { text(value, path_bytes_max, Keep::front); }
    template <class T>
    void list(const std::vector<T>& values, std::size_t max) {
        each(values, max, [this](const T& value) { put(value); });
    }
    void names(const std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](const std::string& value) { name(value); });
    }
    void skip_rest() {}

  private:
    template <class T>
    void put(const T& value) {
        if constexpr (std::same_as<T, bool>) {
            out_.number(std::uint8_t{value});
        } else if constexpr (std::integral<T>) {
            out_.number(value);
        } else if constexpr (std::same_as<T, std::string>) {
            sentence(value);
        } else {
            fields(*this, value);
        }
    }
    template <class T>
    void put(const std::optional<T>& value) {
        put(value.has_value());
        if (value) put(*value);
    }
    template <class... T>
    void put(const std::variant<T...>& value) {
        out_.number(static_cast<std::uint8_t>(value.index()));
        std::visit([this](const auto& chosen) { this->put(chosen); }, value);
    }
    template <class T>
    void each(const std::vector<T>& values, std::size_t max, auto&& write) {
        const auto count = std::min(values.size(), max);
        out_.number(static_cast<std::uint32_t>(count));
        for (std::size_t i = 0; i < count; ++i) write(values[i]);
    }

    ByteWriter out_;
};

class Decoder {
  public:
    explicit Decoder(std::string_view payload) : in_(payload) {}

    /// Every byte was used, and each had an allowed value.
    [[nodiscard]] bool accepted() const { return in_.finished(); }

    void operator()(auto&... values) { (take(values), ...); }
    template <class Enum>
    void choice(Enum& value, Enum last) {
        const auto byte = in_.number<std::uint8_t>();
        if (byte > static_cast<std::uint8_t>(last)) in_.fail();
        if (in_.ok()) value = static_cast<Enum>(byte);
    }
    void bytes(std::string& value, std::size_t max) { value = in_.blob<std::uint32_t>(max); }
    /// Texts are for logs and terminals: no control characters but tabs and newlines, no bytes that are not UTF-8.
    void text(std::string& value, std::size_t max, Keep) {
        bytes(value, max);
        if (!is_printable(value)) in_.fail();
    }
    /// A name stands inside of a line.
    void name(std::string& value) {
        bytes(value, name_bytes_max);
        if (!is_printable_line(value)) in_.fail();
    }
    void line(std::string& value, std::size_t max = sentence_bytes_max) {
        bytes(value, max);
        if (!is_printable_line(value)) in_.fail();
    }
    void sentence(std::string& value) { text(value, sentence_bytes_max, Keep::front); }
    void path(std::string& value) { text(value, path_bytes_max, Keep::front); }
    template <class T>
    void list(std::vector<T>& values, std::size_t max) {
        each(values, max, [this](T& value) { take(value); });
    }
    void names(std::vector<std::string>& values, std::size_t max) {
        each(values, max, [this](std::string& value) { name(value); });
    }
    void skip_rest() { in_.raw(in_.remaining()); }

  private:
    template <class T>
    void take(T& value) {
        if constexpr (std::same_as<T, bool>) {
            const auto byte = in_.number<std::uint8_t>();
            if (byte > 1) in_.fail();
            value = byte == 1;
        } else if constexpr (std::integral<T>) {
            value = in_.number<T>();
        } else if constexpr (std::same_as<T, std::string>) {
            sentence(value);
        } else {
            fields(*this, value);
        }
    }
    template <class T>
    void take(std::optional<T>& value) {
        bool present = false;
        take(present);
        if (present && in_.ok()) take(value.emplace());
    }
    template <class... T>
    void take(std::variant<T...>& value) {
        const auto index = in_.number<std::uint8_t>();
        if (index >= sizeof...(T)) return in_.fail();
        std::uint8_t position = 0;
        ((position++ == index ? take(value.template emplace<T>()) : void()), ...);
    }
    /// Grows with the bytes that are really there: a count alone reserves nothing, and each element is at least a byte.
    template <class T>
    void each(std::vector<T>& values, std::size_t max, auto&& read) {
        const auto count = in_.number<std::uint32_t>();
        if (count > max || count > in_.remaining()) in_.fail();
        for (std::uint32_t i = 0; i < count && in_.ok(); ++i) read(values.emplace_back());
    }

    ByteReader in_;
};

}  // namespace muster::native
