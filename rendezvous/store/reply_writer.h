// Collects the replies to one connection, so that one driver call carries them. Private to store_server*.cpp.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/store/store_server.h"

namespace muster::rendezvous {

/// From this size on a value is given to the driver by reference: below it, copying costs less than one more slice in
/// the write.
inline constexpr std::size_t shared_bytes_min = 4096;

/// The same for replies with very many values, where copies would let a short request cause a huge reply.
inline constexpr std::size_t shared_bytes_min_in_lists = 256;

class ReplyWriter {
  public:
    explicit ReplyWriter(std::string& buffer) : buffer_(buffer) { buffer_.clear(); }

    void begin(StorePeer& peer) { peer_ = &peer; }
    void byte(char value) { buffer_.push_back(value); }
    void number(auto value) { ByteWriter(buffer_).number(value); }
    void blob(std::string_view bytes) { ByteWriter(buffer_).blob<std::uint64_t>(bytes); }
    /// A missing value (null) is sent as an empty one.
    void blob(const SharedValue& value, std::size_t share_from = shared_bytes_min) {
        if (value == nullptr) return blob(std::string_view{});
        if (value->size() < share_from) return blob(std::string_view(*value));
        number(static_cast<std::uint64_t>(value->size()));
        flush();
        total_ += value->size();
        peer_->send(value);
    }
    /// Bytes that are complete replies already.
    void whole(SharedValue bytes) {
        flush();
        total_ += bytes->size();
        peer_->send(std::move(bytes));
    }
    void flush() {
        if (buffer_.empty()) return;
        total_ += buffer_.size();
        peer_->send(std::string_view(buffer_));
        buffer_.clear();
    }
    /// Bytes since construction, unflushed ones included.
    [[nodiscard]] std::size_t total() const { return total_ + buffer_.size(); }

  private:
    std::string& buffer_;
    StorePeer* peer_ = nullptr;
    std::size_t total_ = 0;
};

}  // namespace muster::rendezvous
