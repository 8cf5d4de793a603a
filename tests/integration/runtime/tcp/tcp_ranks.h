// A TCP transport for ranks of tests, and what is done with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/tcp_transport.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::test {

inline runtime::RunTerms within(Duration duration, runtime::WaitMode patience = runtime::WaitMode::frugal) {
    return {.deadline = std::chrono::steady_clock::now() + duration, .patience = patience};
}

/// Meets the other ranks of `terms`; aborts the test program when that fails.
inline std::unique_ptr<runtime::Transport> join_over_tcp(const runtime::GroupTerms& terms,
                                                         const std::string& address = "127.0.0.1", int stripes = 0,
                                                         runtime::TcpAlgorithm algorithm = {}) {
    return runtime::make_tcp_transport(
               terms, {.addresses = {address}, .connections_per_peer = stripes, .algorithm = algorithm})
        .value();
}

/// Waits until all ranks have come here, by their store: a short limit behind it does not begin while others still
/// join.
inline bool all_come(const runtime::GroupTerms& terms, const std::string& where) {
    std::vector<std::string> all;
    for (int rank = 0; rank < terms.size; ++rank) all.push_back(where + "/" + std::to_string(rank));
    const auto here = terms.place->publish(all[static_cast<std::size_t>(terms.rank)], "1", no_deadline);
    return here && terms.place->collect(all, within(60s).deadline).has_value();
}

/// Whatever the operation is, with a minute for it.
inline Result<void> carry_out(runtime::Transport& transport, const Operation& operation) {
    const bool paired = operation.kind == OperationKind::send || operation.kind == OperationKind::receive;
    return paired ? transport.transfer(operation, within(60s)) : transport.run(operation, within(60s));
}

}  // namespace muster::test
