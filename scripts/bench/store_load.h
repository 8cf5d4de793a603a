// What the two halves of store_load share: the server under load, and requests as bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/c10d/request.h"
#include "scripts/bench/loopback.h"

namespace muster::bench {

using c10d::Operation;
using c10d::Request;
using std::chrono::steady_clock;

inline double seconds_since(Instant start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

/// For epoll_wait: the load and the server share a core only where there is one.
inline int patience_ms() {
    return std::thread::hardware_concurrency() > 1 ? 0 : 1000;
}

struct Server {
    std::uint16_t port;
    pid_t pid;

    /// CPU time of all threads so far, in seconds.
    [[nodiscard]] double cpu() const { return cpu_of(cat(pid)); }
    [[nodiscard]] std::size_t descriptor_count() const {
        const std::filesystem::directory_iterator entries(cat("/proc/", pid, "/fd"));
        return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
    }
};

inline std::string encoded(const Request& request) {
    std::string out;
    encode_request(c10d::Family::newer, request, out);
    return out;
}

inline std::string ping() {
    Request request;
    request.operation = Operation::ping;
    return encoded(request);
}

inline std::string handshake() {
    Request hello;
    hello.nonce = c10d::handshake_magic;
    return encoded(hello) + ping();
}

inline std::string set_of(std::string_view key, std::string_view value) {
    Request request;
    request.operation = Operation::set;
    request.key = key;
    request.value = value;
    return encoded(request);
}

/// Measures `count` clients that come at once, meet as `env://` has it, and leave at once. Prints a line of JSON.
/// `behind`: so many are behind each relay, which is one connection. 0: there are no relays.
void crowd(const Server& server, std::size_t count, std::size_t behind);

}  // namespace muster::bench
