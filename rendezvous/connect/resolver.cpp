#include "rendezvous/connect/resolver.h"

#include <boost/asio/post.hpp>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "rendezvous/base/sockets/name_lookup.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::size_t lookups_max = 4;

Result<Resolver::Addresses> as_endpoints(const LookUpAnswer& answer) {
    if (!answer) return answer.error();
    Resolver::Addresses found;
    for (const auto& address : *answer) {
        tcp::endpoint endpoint;
        std::memcpy(endpoint.data(), address.data(), address.size());
        endpoint.resize(address.size());
        found.push_back(endpoint);
    }
    return found;
}

}  // namespace

struct Resolver::Shared {
    struct Question {
        std::uint64_t number = 0;
        Endpoint endpoint;
    };

    std::mutex mutex;
    asio::io_context* io = nullptr;             // null when the Resolver has stopped
    std::map<std::uint64_t, Handler> handlers;  // those of all open requests
    std::deque<Question> waiting;
    std::size_t lookups = 0;
    std::uint64_t last_number = 0;

    /// Starts waiting lookups, up to the limit. Call it with the mutex held.
    static void start_some(const std::shared_ptr<Shared>& shared) {
        while (!shared->waiting.empty() && shared->lookups < lookups_max) {
            const Question question = std::move(shared->waiting.front());
            shared->waiting.pop_front();
            ++shared->lookups;
            const auto started =
                look_up_detached(question.endpoint, [shared, number = question.number](LookUpAnswer answer) {
                    const std::lock_guard lock(shared->mutex);
                    --shared->lookups;
                    answered(shared, number, as_endpoints(answer));
                    start_some(shared);
                });
            if (started) continue;
            --shared->lookups;
            answered(shared, question.number, started.error());
        }
    }

    /// Posts the handler to the loop, which calls it if it is still wanted then. Call it with the mutex held: while
    /// `io` is not null, the io_context exists.
    static void answered(const std::shared_ptr<Shared>& shared, std::uint64_t number, Result<Addresses> answer) {
        if (shared->io == nullptr) return;
        asio::post(*shared->io, [shared, number, answer = std::move(answer)]() mutable {
            if (const auto handler = shared->take(number)) handler(std::move(answer));
        });
    }

    Handler take(std::uint64_t number) {
        const std::lock_guard lock(mutex);
        auto found = handlers.extract(number);
        return found.empty() ? Handler{} : std::move(found.mapped());
    }
};

Resolver::Resolver(asio::io_context& io) : shared_(std::make_shared<Shared>()) {
    shared_->io = &io;
}

Resolver::~Resolver() {
    stop();
}

void Resolver::stop() {
    std::map<std::uint64_t, Handler> dropped;  // destroyed without the lock: objects in them may call the Resolver
    const std::lock_guard lock(shared_->mutex);
    shared_->io = nullptr;
    shared_->waiting.clear();
    dropped.swap(shared_->handlers);
}

void Resolver::resolve(const Endpoint& endpoint, Handler handler) {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->io == nullptr) return;
    const auto number = ++shared_->last_number;
    shared_->handlers.emplace(number, std::move(handler));
    if (auto numeric = numeric_addresses(endpoint); !numeric.empty()) {
        Shared::answered(shared_, number, as_endpoints(std::move(numeric)));
        return;
    }
    shared_->waiting.push_back({.number = number, .endpoint = endpoint});
    Shared::start_some(shared_);
}

}  // namespace muster::rendezvous
