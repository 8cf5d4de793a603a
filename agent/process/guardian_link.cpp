#include "agent/process/guardian_link.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "rendezvous/base/call_later.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/sockets/datagram.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

/// Far more than one round's commands; a guardian that does not read for this long is stopped or stuck.
constexpr std::size_t queue_max_count = 10'000;

}  // namespace

GuardianLink::GuardianLink(asio::io_context& context, FileDescriptor socket) : socket_(context, socket.release()) {}

void GuardianLink::begin() {
    call_when_readable(socket_, [self = shared_from_this()] { self->read(); });
}

void GuardianLink::read() {
    while (!lost_) {
        const auto datagram = receive_datagram(socket_.native_handle(), wire::datagram_max_bytes, 0);
        if (!datagram && errno == EAGAIN) return begin();
        if (!datagram || datagram->bytes.empty()) return lose("its process has ended");
        auto message = wire::decode(datagram->bytes);
        if (!message) return lose("it sent an invalid message");
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
        MUSTER_CHECK(next.fds.size() <= wire::fds_max, next.fds.size());
        int fds[wire::fds_max];
        std::transform(next.fds.begin(), next.fds.end(), fds, [](const FileDescriptor& fd) { return fd.get(); });
        const int failure = send_datagram(socket_.native_handle(), next.bytes, {fds, next.fds.size()});
        // ETOOMANYREFS: more descriptors under way than an ordinary user may have; the guardian is about to take them.
        if (failure == EAGAIN || failure == ETOOMANYREFS) return wait_writable();
        if (failure == EPIPE || failure == ECONNRESET)
            return;  // the reader will say so, after what is still to be read
        if (failure != 0) return lose(errno_text(failure));
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
        const auto handler = std::exchange(self->on_lost, nullptr);  // it may close us while it runs
        if (handler) handler(why);
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
