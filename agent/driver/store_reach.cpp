#include "agent/driver/store_reach.h"

#include <utility>

#include "agent/supervision/store_candidates.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace asio = boost::asio;
using rendezvous::ConnectRace;

namespace {

/// For one address. A lost SYN is sent again after one second.
constexpr Duration attempt_max = 3s;

/// Empty for loopback, and where none has it.
std::string interface_with(const std::string& address) {
    for (const auto& one : list_own_addresses())
        if (one.address.numeric() == address) return one.is_loopback ? std::string() : one.interface;
    return {};
}
/// The first that one of the addresses leads to.
std::string interface_with(const rendezvous::Resolver::Addresses& addresses) {
    for (const auto& one : addresses)
        if (auto interface = interface_with(one.address().to_string()); !interface.empty()) return interface;
    return {};
}

}  // namespace

void StoreReach::start(const native::Assigned& assignment, const Known& known, Handler handler) {
    handler_ = std::move(handler);
    is_bound_later_ = known.is_bound_later;
    if (assignment.group_rank == 0 || assignment.store_addresses.empty()) {
        const auto& all = assignment.store_addresses;
        return find_own(!known.own_address.empty() ? known.own_address : all.empty() ? std::string() : all.front());
    }
    std::vector<std::string> own;
    for (const auto& one : list_own_addresses()) own.push_back(one.address.numeric());
    candidates_ = store_candidates(assignment.store_addresses, own, known.daemon_address);
    const Endpoint store{join(candidates_, ","), assignment.store_port};
    store_ = describe(store);
    look_up(store, [this](Result<Addresses> found) {
        if (!found) return finish({.address = candidates_.front(), .trouble = found.error().context});
        race_ = ConnectRace::start(loop_, std::move(*found), attempt_max,
                                   [this](const ConnectRace::Outcome& outcome) { raced(outcome); });
    });
}

/// The store is on this node: only the interface is asked for.
void StoreReach::find_own(const std::string& own) {
    if (own.empty() || is_loopback(own) || SocketAddress::from_numeric(own, 0))
        return finish({.address = own, .interface = interface_with(own)});
    candidates_ = {own};
    look_up({own, 0}, [this, own](const Result<Addresses>& found) {
        if (found) return finish({.address = own, .interface = interface_with(*found)});
        finish({.address = own,
                .trouble = cat("the name of --local-addr has no address here (", found.error().context,
                               "), so gloo chooses the network interface: write an address")});
    });
}

void StoreReach::look_up(const Endpoint& where, std::function<void(Result<Addresses>)> next) {
    // Whichever of the two comes first is the answer; the other one may be on its way already, and a new search begun.
    const auto answer = [this, number = ++number_, next = std::move(next)](Result<Addresses> found) {
        if (number != number_) return;
        ++number_;
        timer_.cancel();
        next(std::move(found));
    };
    resolver_.resolve(where, answer);
    call_after(timer_, resolve_max_, [this, answer, where] {
        answer(Error{Errc::timed_out,
                     cat(where.host, ": the name was not resolved within ", muster::describe(resolve_max_))});
    });
}

void StoreReach::raced(const ConnectRace::Outcome& outcome) {
    race_ = nullptr;
    if (outcome.socket) {
        boost::system::error_code gone;
        const auto remote = outcome.socket->remote_endpoint(gone).address().to_string();
        const auto local = outcome.socket->local_endpoint(gone).address().to_string();
        if (!gone) return finish({.address = remote, .interface = interface_with(local)});
    }
    for (const auto& [address, why] : outcome.failures)
        if (is_bound_later_ && why == asio::error::connection_refused)
            return finish({.address = address.address().to_string()});
    finish(
        {.address = candidates_.front(),
         .trouble = cat("the workers' store at ", store_, " is not reachable from this node (",
                        what_was_tried(outcome.failures, attempt_max),
                        "); the workers retry with their own timeout. Check firewalls between the nodes (--store-port "
                        "sets the port), and the address of the node of rank 0 (--local-addr there)")});
}

void StoreReach::hurry() {
    if (handler_) finish({.address = candidates_.front()});
}

void StoreReach::cancel() {
    handler_ = nullptr;
    ++number_;
    timer_.cancel();
    if (race_) std::exchange(race_, nullptr)->cancel();
}

void StoreReach::finish(Found found) {
    const auto handler = std::exchange(handler_, nullptr);
    cancel();
    if (handler) handler(std::move(found));
}

}  // namespace muster::agent
