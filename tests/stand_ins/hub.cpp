#include "tests/stand_ins/hub.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

namespace muster::stand_ins {

namespace {

struct Hello {
    std::int32_t rank;  ///< -1: the hub is closed
    std::int32_t size;
};

bool read_all(int socket, void* data, std::size_t size) {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
        const auto got = ::recv(socket, at, size, 0);
        if (got <= 0) return false;
        at += got;
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int socket, const void* data, std::size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
        const auto put = ::send(socket, at, size, MSG_NOSIGNAL);
        if (put <= 0) return false;
        at += put;
        size -= static_cast<std::size_t>(put);
    }
    return true;
}

bool read_frame(int socket, Frame& frame) {
    std::uint64_t size = 0;
    if (!read_all(socket, &size, sizeof size)) return false;
    frame.resize(size);
    return read_all(socket, frame.data(), frame.size());
}

bool write_frame(int socket, const Frame& frame) {
    const std::uint64_t size = frame.size();
    return write_all(socket, &size, sizeof size) && write_all(socket, frame.data(), frame.size());
}

socklen_t address_of(const std::string& name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero: no file
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_own_process(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == ::getpid();
}

/// Until one of the ranks goes; the others see the end of their connection then.
void serve(int listener) {
    std::vector<int> ranks;
    std::size_t come = 0;
    do {
        const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        Hello hello{};
        if (socket < 0 || !read_all(socket, &hello, sizeof hello)) {
            if (socket >= 0) ::close(socket);
            continue;
        }
        if (hello.rank < 0) {
            ranks.push_back(socket);
            break;
        }
        ranks.resize(static_cast<std::size_t>(hello.size), -1);
        ranks[static_cast<std::size_t>(hello.rank)] = socket;
        ++come;
    } while (ranks.empty() || come < ranks.size());
    ::close(listener);
    // Those of this process last: as soon as the rank that opened this hub has its bytes its process may end, and this
    // thread with it.
    auto in_turn = ranks;
    std::stable_partition(in_turn.begin(), in_turn.end(), [](int rank) { return !is_own_process(rank); });
    bool good = come == ranks.size();
    for (const int rank : in_turn) good = good && write_all(rank, "+", 1);
    std::vector<Frame> frames(ranks.size());
    while (good) {
        for (std::size_t i = 0; i < ranks.size() && good; ++i) good = read_frame(ranks[i], frames[i]);
        for (const int rank : in_turn) {
            for (std::size_t i = 0; i < frames.size() && good; ++i) good = write_frame(rank, frames[i]);
        }
    }
    for (const int rank : ranks)
        if (rank >= 0) ::close(rank);
}

}  // namespace

std::string open_hub() {
    unsigned char random[16];
    if (::getrandom(random, sizeof random, 0) != sizeof random) return "";
    std::string name = "muster-standin-";
    for (const auto byte : random) name += "0123456789abcdef"[byte % 16];
    sockaddr_un address;
    const auto size = address_of(name, address);
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener, 64) != 0) {
        return "";
    }
    std::thread(serve, listener).detach();
    return name;
}

void close_hub(const std::string& name) {
    sockaddr_un address;
    const auto size = address_of(name, address);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const Hello hello{.rank = -1, .size = 0};
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), size) == 0) write_all(socket, &hello, sizeof hello);
    ::close(socket);
}

HubLink::HubLink() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

HubLink::~HubLink() {
    if (socket_ >= 0) ::close(socket_);
}

bool HubLink::connect(const std::string& hub, int rank, int size) {
    sockaddr_un address;
    const auto address_size = address_of(hub, address);
    size_ = size;
    const Hello hello{.rank = rank, .size = size};
    char plus = 0;
    return ::connect(socket_, reinterpret_cast<sockaddr*>(&address), address_size) == 0 && !ended_ &&
           write_all(socket_, &hello, sizeof hello) && read_all(socket_, &plus, 1);
}

std::vector<Frame> HubLink::exchange(const Frame& own) {
    if (!write_frame(socket_, own)) return {};
    std::vector<Frame> all(static_cast<std::size_t>(size_));
    for (auto& frame : all) {
        if (!read_frame(socket_, frame)) return {};
    }
    return all;
}

void HubLink::end() {
    ended_ = true;
    ::shutdown(socket_, SHUT_RDWR);
}

}  // namespace muster::stand_ins
