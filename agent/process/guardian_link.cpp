#include "agent/process/guardian_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "rendezvous/base/check.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

/// Far more than one round's commands; a guardian that does not read for this long is stopped or stuck.
constexpr std::size_t queue_max_count = 10'000;

/// One sendmsg; its errno, or 0.
int send_datagram(int socket, const std::string& bytes, const std::vector<FileDescriptor>& fds) {
    MUSTER_CHECK(fds.size() <= wire::spawn_max_fds, fds.size());
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::spawn_max_fds)] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
        auto* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
        auto* numbers = reinterpret_cast<int*>(CMSG_DATA(item));
        for (const auto& fd : fds) *numbers++ = fd.get();
    }
    return ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

}  // namespace

GuardianLink::GuardianLink(asio::io_context& context, FileDescriptor socket) : socket_(context, socket.release()) {}

void GuardianLink::begin() {
    wait_readable();
}

void GuardianLink::wait_readable() {
    socket_.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](auto failure) {
        if (failure || self->lost_) return;
        self->read();
    });
}

void GuardianLink::read() {
    std::string bytes(wire::datagram_max_bytes, '\0');
    while (!lost_) {
        const auto size = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) return wait_readable();
        if (size <= 0) return lose("its process has ended");
        auto message = wire::decode({bytes.data(), static_cast<std::size_t>(size)});
        if (!message) return lose("it sent bytes that are no message");
        if (on_message) on_message(std::move(*message));
    }
}

void GuardianLink::send(const wire::Message& message, std::vector<FileDescriptor> fds) {
    if (lost_) return;
    queue_.push_back({wire::encode(message), std::move(fds)});
    if (queue_.size() > queue_max_count) return lose("it does not read its commands");
    if (!waiting_writable_) flush();
}

void GuardianLink::flush() {
    while (!queue_.empty() && !lost_) {
        const auto& next = queue_.front();
        const int failure = send_datagram(socket_.native_handle(), next.bytes, next.fds);
        if (failure == EINTR) continue;
        // ETOOMANYREFS: more descriptors under way than an ordinary user may have; the guardian is about to take them.
        if (failure == EAGAIN || failure == ETOOMANYREFS) return wait_writable();
        if (failure == EPIPE || failure == ECONNRESET)
            return;  // the reader will say so, after what is still to be read
        if (failure != 0) return lose(::strerror(failure));
        queue_.pop_front();
    }
}

void GuardianLink::wait_writable() {
    waiting_writable_ = true;
    socket_.async_wait(asio::posix::descriptor_base::wait_write, [self = shared_from_this()](auto failure) {
        self->waiting_writable_ = false;
        if (!failure && !self->lost_) self->flush();
    });
}

void GuardianLink::lose(std::string why) {
    if (std::exchange(lost_, true)) return;
    queue_.clear();
    // Posted: this may run inside a call of our owner.
    asio::post(socket_.get_executor(), [self = shared_from_this(), why = std::move(why)] {
        if (self->on_lost) self->on_lost(why);
    });
}

void GuardianLink::close() {
    if (!lost_) flush();
    lost_ = true;
    on_message = nullptr;
    on_lost = nullptr;
    boost::system::error_code ignored;
    socket_.close(ignored);
}

}  // namespace muster::agent
