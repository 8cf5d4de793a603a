#include "worker_runtime/tcp/records/tcp_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

namespace muster::runtime {

namespace {

/// Records that go in one call.
constexpr std::size_t records_at_once = 8;
/// Of the caller's, that go into one record.
constexpr std::size_t parts_per_record = 8;
constexpr std::size_t record_bytes_max = record_data_bytes_max + record_overhead_bytes;
constexpr std::size_t buffer_bytes = records_at_once * record_bytes_max;

std::size_t size_of(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const auto& part : parts) size += part.iov_len;
    return size;
}

}  // namespace

/// A place in the caller's parts.
class TcpRecords::Cursor {
  public:
    explicit Cursor(std::span<const iovec> parts) : parts_(parts), left_(size_of(parts)) {}

    [[nodiscard]] std::size_t left() const { return left_; }
    /// What lies in one piece from here; not empty while something is left.
    [[nodiscard]] std::span<std::byte> piece() {
        while (!parts_.empty() && at_ == parts_.front().iov_len) {
            parts_ = parts_.subspan(1);
            at_ = 0;
        }
        if (parts_.empty()) return {};
        return {static_cast<std::byte*>(parts_.front().iov_base) + at_, parts_.front().iov_len - at_};
    }
    void advance(std::size_t size) {
        left_ -= size;
        while (size > 0) {
            const auto step = std::min(size, piece().size());
            at_ += step;
            size -= step;
        }
    }

  private:
    std::span<const iovec> parts_;
    std::size_t at_ = 0;
    std::size_t left_;
};

TcpRecords::TcpRecords(std::string own_secret, std::string peers_secret)
    : sealer_(RecordCipher::Use::seal, std::move(own_secret)),
      opener_(RecordCipher::Use::open, std::move(peers_secret)) {}

void TcpRecords::Buffer::take(std::size_t size_bytes) {
    begin += size_bytes;
    if (begin < end) return;
    memory.reset();
    begin = end = 0;
}

/// The kernel may take a part of the records. The rest stays here, and the caller comes again with the same data.
ssize_t TcpRecords::send(int socket, std::span<const iovec> parts) {
    Cursor from(parts);
    from.advance(std::min(sealed_data_, from.left()));
    for (std::size_t moved = 0;;) {
        if (sealed_.size() == 0 && from.left() == 0) return static_cast<ssize_t>(moved);
        if (sealed_.size() == 0) seal_some(from);
        while (sealed_.size() > 0) {
            const auto sent = ::send(socket, sealed_.data(), sealed_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return moved > 0 && errno == EAGAIN ? static_cast<ssize_t>(moved) : -1;
            sealed_.take(static_cast<std::size_t>(sent));
        }
        moved += std::exchange(sealed_data_, 0);
    }
}

void TcpRecords::seal_some(Cursor& from) {
    const auto whole = std::min(from.left(), records_at_once * record_data_bytes_max);
    sealed_.memory = std::make_unique_for_overwrite<std::byte[]>(whole + records_at_once * record_overhead_bytes);
    // Parts that are many and small make smaller records, for which there may not be room: the next call has them.
    for (std::size_t records = 0; sealed_data_ < whole && records < records_at_once; ++records) {
        std::array<std::span<const std::byte>, parts_per_record> data;
        std::size_t count = 0;
        for (auto room = record_data_bytes_max; room > 0 && count < data.size() && from.left() > 0; ++count) {
            const auto part = from.piece();
            data[count] = part.first(std::min(part.size(), room));
            room -= data[count].size();
            sealed_data_ += data[count].size();
            from.advance(data[count].size());
        }
        sealed_.end += sealer_.seal(std::span(data).first(count), sealed_.memory.get() + sealed_.end);
    }
}

ssize_t TcpRecords::receive(int socket, std::span<const iovec> parts) {
    Cursor to(parts);
    const auto all = to.left();
    while (to.left() > 0) {
        if (opened_.size() > 0) {
            const auto target = to.piece();
            const auto size = std::min(target.size(), opened_.size());
            ::memcpy(target.data(), opened_.data(), size);
            opened_.take(size);
            to.advance(size);
        } else if (broken_) {
            if (to.left() < all) break;  // what came whole is not lost with what comes after it
            errno = EBADMSG;
            return -1;
        } else if (!open_one(to) && !broken_) {
            const auto got = receive_more(socket, to.left());
            if (got > 0) continue;
            if (to.left() < all) break;  // the next call meets the end, or the error, again
            return got;
        }
    }
    return static_cast<ssize_t>(all - to.left());
}

/// False: the record has not arrived whole, or it is none.
bool TcpRecords::open_one(Cursor& to) {
    if (arrived_.size() < record_header_bytes) return false;
    const auto body =
        RecordCipher::body_bytes(std::span<const std::byte, record_header_bytes>(arrived_.data(), record_header_bytes));
    if (body == 0) broken_ = true;
    if (broken_ || arrived_.size() < record_header_bytes + body) return false;
    const std::span<const std::byte> record(arrived_.data(), record_header_bytes + body);
    const auto data_bytes = record.size() - record_overhead_bytes;
    const bool fits = to.piece().size() >= data_bytes;
    if (!fits) opened_ = {std::make_unique_for_overwrite<std::byte[]>(data_bytes), 0, data_bytes};
    broken_ = !opener_.open(record, fits ? to.piece().data() : opened_.data());
    if (broken_) {
        opened_ = {};
        return false;
    }
    if (fits) to.advance(data_bytes);
    arrived_.take(record.size());
    return true;
}

/// Not much more than the caller wants, but a whole record.
ssize_t TcpRecords::receive_more(int socket, std::size_t wanted) {
    if (!arrived_.memory) arrived_.memory = std::make_unique_for_overwrite<std::byte[]>(buffer_bytes);
    if (arrived_.begin > 0) {
        ::memmove(arrived_.memory.get(), arrived_.data(), arrived_.size());
        arrived_ = {std::move(arrived_.memory), 0, arrived_.size()};
    }
    const auto room = std::min(buffer_bytes - arrived_.end,
                               std::max(wanted + records_at_once * record_overhead_bytes, record_bytes_max));
    const auto got = ::recv(socket, arrived_.memory.get() + arrived_.end, room, MSG_DONTWAIT);
    if (got > 0) arrived_.end += static_cast<std::size_t>(got);
    const int failure = errno;
    if (arrived_.size() == 0) arrived_.take(0);
    errno = failure;
    return got;
}

ssize_t TcpStream::send(std::span<const iovec> parts) const {
    if (records_) return records_->send(socket_.get(), parts);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t TcpStream::receive(std::span<const iovec> parts) const {
    if (records_) return records_->receive(socket_.get(), parts);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
}

}  // namespace muster::runtime
