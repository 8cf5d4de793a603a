// An agent's channel, and a worker at its other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "agent/channel/agent_channel.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/local/codec.h"
#include "tests/support/catch.h"
#include "tests/support/run_until.h"

namespace muster::agent {

/// A worker that speaks the channel in bytes.
class Worker {
  public:
    explicit Worker(const std::string& address) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        address.copy(name.sun_path + 1, sizeof name.sun_path - 2, 1);
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
        REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
        const timeval limit{.tv_sec = 60, .tv_usec = 0};  // for hear()
        REQUIRE(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    }
    /// One that shows the token, as the runtime does.
    explicit Worker(const AgentChannel& channel, const std::string& runtime = "muster 0.1.0")
        : Worker(channel.address()) {
        say(local::Hello{1, 42, runtime, channel.token()});
    }
    void say(const local::Message& message) { say_bytes(local::encode(message)); }
    void say_bytes(const std::string& bytes) {
        REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    }
    void give(const local::Give& give, int descriptor) {
        std::string bytes = local::encode(give);
        iovec piece{bytes.data(), bytes.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
        REQUIRE(::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) > 0);
    }
    /// What the agent sent, or nothing at the end of the channel.
    std::string hear() { return heard(0).value_or(std::string()); }
    /// The same without waiting; nullopt: nothing yet.
    std::optional<std::string> heard(int flags = MSG_DONTWAIT) {
        char bytes[4096];
        const auto size = ::recv(socket_.get(), bytes, sizeof bytes, flags);
        if (size < 0 && errno == EAGAIN) return std::nullopt;
        return size <= 0 ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
    }
    /// The queue of what was said and not read has twice the usual room.
    void hold_much() {
        const int room = 212992;  // the kernel doubles it
        REQUIRE(::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    }
    void go() { socket_.reset(); }

  private:
    FileDescriptor socket_;
};

struct ChannelRig {
    ChannelRig() : channel(std::move(AgentChannel::open(loop, 3).value())) {}
    bool run_until(const std::function<bool()>& done) { return muster::test::run_until(loop, done); }
    const WorkerFacts& facts() const { return channel->facts(); }
    /// What a connection gets next; empty: its end.
    std::string next_for(Worker& newcomer) {
        std::optional<std::string> heard;
        REQUIRE(run_until([&] {
            if (!heard) heard = newcomer.heard();
            return heard.has_value();
        }));
        return *heard;
    }
    /// What the agent says to a connection that says this first.
    std::string answer_to(const local::Message& first) {
        Worker newcomer(channel->address());
        newcomer.say(first);
        return next_for(newcomer);
    }

    boost::asio::io_context loop;
    ClosingPtr<AgentChannel> channel;
};

}  // namespace muster::agent
