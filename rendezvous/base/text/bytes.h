// Little-endian reading and writing of wire bytes, bounds-checked. Used by every codec.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace muster {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; port ByteReader and ByteWriter");

/// Appends to a string that the caller owns. Bytes travel as char so that std::string can hold them.
class ByteWriter {
  public:
    explicit ByteWriter(std::string& out) : out_(out) {}

    template <std::integral T>
    void number(T value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void raw(std::string_view bytes) { out_.append(bytes); }
    /// A length of type `Length`, then the bytes. The caller has checked that the length fits.
    template <std::unsigned_integral Length>
    void blob(std::string_view bytes) {
        number(static_cast<Length>(bytes.size()));
        raw(bytes);
    }

  private:
    std::string& out_;
};

/// Takes values from the front of a view. After the first read beyond the end (or beyond a limit) `ok()` is false for
/// good and every later read gives zero or empty, so a decoder may read all its fields and ask once.
class ByteReader {
  public:
    explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

    [[nodiscard]] bool ok() const { return ok_; }
    [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
    /// All bytes were read, none beyond.
    [[nodiscard]] bool finished() const { return ok_ && rest_.empty(); }
    void fail() { ok_ = false; }

    template <std::integral T>
    T number() {
        T value{};
        if (!take_allowed(sizeof value)) return value;
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_.remove_prefix(sizeof value);
        return value;
    }
    /// The next `size` bytes; the view lives as long as the bytes given to the constructor.
    std::string_view raw(std::size_t size) {
        if (!take_allowed(size)) return {};
        const auto bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return bytes;
    }
    /// A length of type `Length` of at most `size_max`, then that many bytes.
    template <std::unsigned_integral Length>
    std::string_view blob(std::size_t size_max) {
        const auto size = number<Length>();
        if (size > size_max) fail();
        return ok_ ? raw(static_cast<std::size_t>(size)) : std::string_view{};
    }

  private:
    bool take_allowed(std::size_t size) {
        if (size > rest_.size()) ok_ = false;
        return ok_;
    }

    std::string_view rest_;
    bool ok_ = true;
};

}  // namespace muster
