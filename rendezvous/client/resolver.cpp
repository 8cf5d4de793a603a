#include "rendezvous/client/resolver.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int threads_max = 4;

Resolver::Addresses interleave(const Resolver::Addresses& found) {
    // The first one's family first: that is the system's preference (RFC 6724), the other one a close second.
    std::deque<tcp::endpoint> first;
    std::deque<tcp::endpoint> second;
    for (const auto& address : found) {
        (address.protocol() == found.front().protocol() ? first : second).push_back(address);
    }
    Resolver::Addresses out;
    while (!first.empty() || !second.empty()) {
        for (auto* family : {&first, &second}) {
            if (family->empty()) continue;
            out.push_back(family->front());
            family->pop_front();
        }
    }
    return out;
}

Result<Resolver::Addresses> look_up(const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int failure = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list);
    if (failure != 0) return Error{Errc::unreachable, cat(endpoint.host, ": ", ::gai_strerror(failure))};
    Resolver::Addresses found;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        tcp::endpoint address;
        if (entry->ai_addrlen > address.capacity()) continue;
        std::memcpy(address.data(), entry->ai_addr, entry->ai_addrlen);
        address.resize(entry->ai_addrlen);
        address.port(endpoint.port);
        found.push_back(address);
    }
    ::freeaddrinfo(list);
    if (found.empty()) return Error{Errc::unreachable, cat(endpoint.host, ": the name has no address")};
    return interleave(found);
}

}  // namespace

struct Resolver::Shared {
    struct Job {
        Endpoint endpoint;
        Handler handler;
    };

    std::mutex mutex;
    asio::io_context* io = nullptr;  // null when the Resolver is gone
    std::deque<Job> jobs;
    int threads = 0;

    // Runs on a detached thread; touches the io_context only under the mutex and while it is known to be there.
    static void work(const std::shared_ptr<Shared>& shared) {
        std::unique_lock lock(shared->mutex);
        while (!shared->jobs.empty()) {
            Job job = std::move(shared->jobs.front());
            shared->jobs.pop_front();
            lock.unlock();
            auto found = look_up(job.endpoint);
            lock.lock();
            if (shared->io == nullptr) break;
            asio::post(*shared->io, [handler = std::move(job.handler), found = std::move(found)] { handler(found); });
        }
        --shared->threads;
    }
};

Resolver::Resolver(asio::io_context& io) : shared_(std::make_shared<Shared>()) {
    shared_->io = &io;
}

Resolver::~Resolver() {
    const std::lock_guard lock(shared_->mutex);
    shared_->io = nullptr;
    shared_->jobs.clear();
}

void Resolver::resolve(const Endpoint& endpoint, Handler handler) {
    boost::system::error_code no_number;
    const auto address = asio::ip::make_address(endpoint.host, no_number);
    if (!no_number) {
        asio::post(*shared_->io, [handler = std::move(handler), found = tcp::endpoint(address, endpoint.port)] {
            handler(Addresses{found});
        });
        return;
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back({.endpoint = endpoint, .handler = std::move(handler)});
    if (shared_->threads == threads_max) return;
    ++shared_->threads;
    // Signals belong to the thread that waits for them: this one takes none.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([shared = shared_] { Shared::work(shared); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace muster::rendezvous
