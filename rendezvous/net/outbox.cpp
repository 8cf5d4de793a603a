#include "rendezvous/net/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace muster::rendezvous {

namespace {

// A block grows up to this; the next small answer starts another one.
constexpr std::size_t block_bytes = 64 * 1024;
// Pieces in one system call; more only means one more call.
constexpr std::size_t pieces_per_call = 64;
// Of a block that is kept between answers. It is outside of any budget, and each idle connection may keep one.
constexpr std::size_t spare_bytes_max = 1024;

}  // namespace

void Outbox::push(std::string_view bytes) {
    if (bytes.empty()) return;
    const bool fits = !pieces_.empty() && !pieces_.back().shared && pieces_.back().own.size() < block_bytes;
    if (!fits) pieces_.push_back({.shared = nullptr, .own = std::exchange(spare_, {})});
    std::string& block = pieces_.back().own;
    own_bytes_ -= fits ? block.capacity() : 0;
    block.append(bytes);
    own_bytes_ += block.capacity();
    unsent_bytes_ += bytes.size();
}

void Outbox::push(Buffer bytes) {
    if (!bytes || bytes->empty()) return;
    unsent_bytes_ += bytes->size();
    pieces_.push_back({.shared = std::move(bytes), .own = {}});
}

Outbox::Flush Outbox::flush(int fd) {
    while (unsent_bytes_ > 0) {
        std::array<iovec, pieces_per_call> parts;
        const std::size_t count = std::min(pieces_.size() - first_, parts.size());
        for (std::size_t i = 0; i < count; ++i) {
            std::string_view bytes = pieces_[first_ + i].bytes();
            if (i == 0) bytes.remove_prefix(first_sent_);
            parts[i] = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
        }
        // sendmsg and not writev: a closed connection must give EPIPE, not a signal.
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = count;
        const ssize_t sent = count == 1 ? ::send(fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL)
                                        : ::sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            return errno == EAGAIN ? Flush::blocked : Flush::broken;
        }
        drop_sent(static_cast<std::size_t>(sent));
    }
    return Flush::sent;
}

void Outbox::drop_sent(std::size_t count) {
    unsent_bytes_ -= count;
    if (unsent_bytes_ == 0) {
        if (!pieces_[0].shared && pieces_[0].own.capacity() <= spare_bytes_max) {
            spare_ = std::move(pieces_[0].own);
            spare_.clear();
        }
        pieces_.clear();
        if (pieces_.capacity() > pieces_per_call) pieces_.shrink_to_fit();
        first_ = first_sent_ = own_bytes_ = 0;
        return;
    }
    for (count += first_sent_; count >= pieces_[first_].bytes().size(); ++first_) {
        count -= pieces_[first_].bytes().size();
        if (!pieces_[first_].shared) own_bytes_ -= pieces_[first_].own.capacity();
        pieces_[first_] = {};  // free it now: a slow reader must not hold what it has got
    }
    first_sent_ = count;
    // Keep the vector from growing for as long as a slow reader stays slow. Half of it at a time: a piece moves once.
    if (first_ >= std::max(pieces_per_call, pieces_.size() / 2)) {
        pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
}

}  // namespace muster::rendezvous
