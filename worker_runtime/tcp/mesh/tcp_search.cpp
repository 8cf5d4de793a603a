#include "worker_runtime/tcp/mesh/tcp_search.h"

#include <errno.h>

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/sockets/connect_limits.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

// ---- the way to a rank ----

TcpSearch::TcpSearch(const TcpHello& hello, const std::vector<SocketAddress>& addresses, const TcpPair& pair) {
    MUSTER_CHECK(!addresses.empty(), hello.to);
    for (const auto& address : addresses) tries_.emplace_back(hello, address, pair);
}

Instant TcpSearch::due() const {
    auto due = begun_ < tries_.size() ? next_turn_ : no_deadline;
    for (std::size_t i = 0; i < begun_; ++i) due = std::min(due, tries_[i].due());
    return due;
}

Result<void> TcpSearch::dial(Instant now) {
    for (std::size_t i = 0; i < begun_; ++i) {
        if (now < tries_[i].due()) continue;
        if (auto dialled = tries_[i].dial(now); !dialled) return dialled;
    }
    while (begun_ < tries_.size() && now >= next_turn_) {
        auto& next = tries_[begun_++];
        if (auto dialled = next.dial(now); !dialled) return dialled;
        if (next.fd() >= 0) next_turn_ = now + rendezvous::connect_stagger;
    }
    return {};
}

void TcpSearch::add_to(std::vector<pollfd>& polled) const {
    for (const auto& one : tries_) polled.push_back({one.fd(), one.events(), 0});
}

TcpCall* TcpSearch::serve(const pollfd* polled, Instant now) {
    for (std::size_t i = 0; i < begun_; ++i) {
        auto& one = tries_[i];
        if (polled[i].revents == 0 || one.fd() < 0) continue;
        one.serve(now);
        if (one.established()) return &one;
        if (i + 1 < begun_) continue;
        if (one.fd() < 0) next_turn_ = now;
        if (one.greeted()) next_turn_ = std::max(next_turn_, now + search_answer_timeout);
    }
    return nullptr;
}

bool TcpSearch::hopeless() const {
    return std::all_of(tries_.begin(), tries_.end(), [](const auto& one) { return one.hopeless(); });
}

std::string TcpSearch::what_was_tried() const {
    std::vector<std::string> words;
    for (const auto& one : tries_)
        words.push_back(cat(one.where(), ": ", one.trouble().empty() ? std::string("not tried yet") : one.trouble()));
    return join(words, ", ");
}

// ---- probes ----

bool TcpProbe::begin(Instant now) {
    if (socket_.valid()) return ended(ETIMEDOUT, now);
    int failure = 0;
    socket_ = begin_connect(addresses_[at_], failure);
    due_ = now + probe_interval;
    return failure != 0 && ended(failure, now);
}

bool TcpProbe::end(Instant now) {
    return ended(connect_failure(socket_), now);
}

bool TcpProbe::ended(int failure, Instant now) {
    socket_.reset();
    due_ = now + probe_interval;
    if (failure == 0) leads_ = true;
    if (failure == ECONNREFUSED && (leads_ || ++refused_count_ == addresses_.size())) return true;
    if (leads_) return false;
    at_ = (at_ + 1) % addresses_.size();
    if (at_ == 0)
        refused_count_ = 0;
    else
        due_ = now;
    return false;
}

bool all_refuse(const std::vector<SocketAddress>& addresses, Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<FileDescriptor> tries;
    for (const auto& address : addresses) {
        int failure = 0;
        auto socket = begin_connect(address, failure);
        if (failure == ECONNREFUSED) continue;
        if (failure != 0) return false;
        tries.push_back(std::move(socket));
    }
    while (!tries.empty()) {
        pollfd answered{tries.back().get(), POLLOUT, 0};
        const int left = poll_timeout_ms(deadline, std::chrono::steady_clock::now());
        if (::poll(&answered, 1, left) != 1 || connect_failure(tries.back()) != ECONNREFUSED) return false;
        tries.pop_back();
    }
    return true;
}

}  // namespace muster::runtime
