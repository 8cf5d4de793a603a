#include "rendezvous/base/sockets/name_lookup.h"

#include <netdb.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster {

namespace {

std::vector<SocketAddress> interleave(const std::vector<SocketAddress>& found) {
    std::deque<SocketAddress> first;
    std::deque<SocketAddress> second;
    for (const auto& address : found) (address.family() == found.front().family() ? first : second).push_back(address);
    std::vector<SocketAddress> out;
    while (!first.empty() || !second.empty()) {
        for (auto* family : {&first, &second}) {
            if (family->empty()) continue;
            out.push_back(family->front());
            family->pop_front();
        }
    }
    return out;
}

LookUpAnswer ask_the_system(const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (const int failure = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list); failure != 0)
        return Error{Errc::unreachable, cat(endpoint.host, ": ", ::gai_strerror(failure))};
    std::vector<SocketAddress> found;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        auto address = SocketAddress::from(entry->ai_addr);
        if (!address) continue;
        address->set_port(endpoint.port);
        found.push_back(*address);
    }
    ::freeaddrinfo(list);
    if (found.empty()) return Error{Errc::unreachable, cat(endpoint.host, ": the name has no address")};
    return interleave(found);
}

/// Shared with the thread, which may outlive the call.
struct Waiting {
    std::mutex mutex;
    std::condition_variable finished;
    std::optional<LookUpAnswer> answer;
};

}  // namespace

std::vector<SocketAddress> numeric_addresses(const Endpoint& endpoint) {
    std::vector<SocketAddress> all;
    for (const auto part : split(endpoint.host, ',')) {
        const auto numeric = SocketAddress::from_numeric(std::string(part), endpoint.port);
        if (!numeric) return {};
        all.push_back(*numeric);
    }
    return all;
}

Result<void> look_up_detached(const Endpoint& endpoint, std::function<void(LookUpAnswer)> done) {
    auto thread = start_thread("muster-names", [endpoint, done = std::move(done)] { done(ask_the_system(endpoint)); });
    if (!thread) return thread.error();
    thread->detach();
    return {};
}

LookUpAnswer look_up(const Endpoint& endpoint, Instant deadline) {
    if (auto numeric = numeric_addresses(endpoint); !numeric.empty()) return numeric;
    const auto waiting = std::make_shared<Waiting>();
    auto started = look_up_detached(endpoint, [waiting](LookUpAnswer answer) {
        const std::lock_guard lock(waiting->mutex);
        waiting->answer = std::move(answer);
        waiting->finished.notify_one();
    });
    if (!started) return started.error();
    std::unique_lock lock(waiting->mutex);
    if (!waiting->finished.wait_until(lock, deadline, [&] { return waiting->answer.has_value(); }))
        return Error{Errc::timed_out, cat(endpoint.host, ": the name service did not answer in time")};
    return std::move(*waiting->answer);
}

}  // namespace muster
