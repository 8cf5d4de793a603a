#include "agent/commands/command_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "agent/channel/local_listener.h"
#include "agent/commands/command_address.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

/// People give commands one at a time; more connections than this are somebody's mistake.
constexpr std::size_t connections_max = 16;
/// A command has a name and a sentence.
constexpr std::size_t datagram_bytes_max = 8 * 1024;
/// Between two looks at a connection that cannot be taken because descriptors have run out.
constexpr Duration accept_pause = 200ms;

bool may_command(int socket) {
    const auto user = peer_user(socket);
    if (user && (*user == ::geteuid() || *user == 0)) return true;
    log(LogLevel::warning, "a command of ",
        user ? cat("user ", *user) : "a user who has no number in this user namespace",
        " was refused: it is not this job's user");
    return false;
}

}  // namespace

void CommandSocket::wait() {
    call_when_readable(listener_, [self = shared_from_this()] {
        if (self->closed_) return;
        if (self->accept()) return self->wait();
        // It stays in the queue, and the listener readable.
        call_after(self->pause_, accept_pause, [self] {
            if (!self->closed_) self->wait();
        });
    });
}

bool CommandSocket::accept() {
    FileDescriptor socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!may_command(socket.get())) return true;
    if (callers_.size() >= connections_max) callers_.erase(callers_.begin());
    const auto number = ++last_number_;
    callers_.try_emplace(number, loop_, socket.release());
    wait_for(number);
    return true;
}

/// The number finds the caller again; it may be gone, and nobody else gets its number.
void CommandSocket::wait_for(std::uint32_t number) {
    call_when_readable(callers_.at(number).descriptor, [self = shared_from_this(), number] {
        const auto found = self->callers_.find(number);
        if (self->closed_ || found == self->callers_.end()) return;
        if (self->read(number, found->second) && !self->closed_)
            self->wait_for(number);
        else
            self->callers_.erase(number);
    });
}

bool CommandSocket::read(std::uint32_t number, Caller& caller) {
    std::string bytes(datagram_bytes_max, '\0');
    const auto size = ::recv(caller.descriptor.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) return false;
    native::FrameReader reader(native::Sender::agent);
    reader.append(std::string_view(bytes).substr(0, static_cast<std::size_t>(size)));
    auto message = reader.next();
    auto* command = message && message.value() ? std::get_if<native::Command>(&*message.value()) : nullptr;
    if (command == nullptr) return false;
    // Whoever waited in vain may have asked another agent meanwhile, or think that nothing was done.
    if (has_hung_up(caller.descriptor.native_handle())) {
        log(LogLevel::warning, "a command is not executed: its sender did not wait for it");
        return false;
    }
    caller.own_number = std::exchange(command->number, number);
    on_command_(std::move(*command));
    return true;
}

void CommandSocket::answer(native::CommandAnswer answer) {
    const auto found = callers_.find(answer.number);
    if (found == callers_.end()) return;
    answer.number = found->second.own_number;
    std::string frame;
    native::append_frame(frame, answer);
    if (::send(found->second.descriptor.native_handle(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log(LogLevel::info, "the sender of a command does not receive the answer: ", answer.text);
}

void CommandSocket::close() {
    closed_ = true;
    boost::system::error_code ignored;
    listener_.close(ignored);
    pause_.cancel();
    callers_.clear();
}

Result<ClosingPtr<CommandSocket>> CommandSocket::open(asio::io_context& loop, const std::string& job,
                                                      OnCommand on_command) {
    const CommandAddress address{.user = ::geteuid(), .pid = ::getpid(), .token = fresh_token(), .job = job};
    auto socket = MUSTER_TRY(listen_locally(write_command_address(address), "commands"));
    std::shared_ptr<CommandSocket> made(new CommandSocket(loop, std::move(socket), std::move(on_command)));
    made->wait();
    return closing(std::move(made));
}

}  // namespace muster::agent
