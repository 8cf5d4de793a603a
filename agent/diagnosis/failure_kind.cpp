#include "agent/diagnosis/failure_kind.h"

#include <algorithm>
#include <array>

#include "agent/diagnosis/end_cause.h"
#include "agent/diagnosis/error_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Texts that the libraries put into the error of a process whose *peer* has gone. Compared as they are written there.
constexpr std::array victim_messages = {
    // The operating system's, as gloo ("Read error [..]: Connection reset by peer"), MPI and Python quote them.
    std::string_view("Connection reset by peer"),
    // gloo, transport/tcp/pair.cc and transport/tcp/unbound_buffer.cc.
    std::string_view("Connection closed by peer"),
    std::string_view("Socket closed"),
    std::string_view("Application timeout caused pair closure"),
    std::string_view("Timed out waiting"),
    std::string_view("Connect timeout"),
    // c10d's TCPStore client, socket.cpp and TCPStore.cpp.
    std::string_view("Connection was likely closed"),
    std::string_view("failed to recv, got 0 bytes"),
    std::string_view("recvValue failed on"),
    std::string_view("sendBytes failed on"),
    std::string_view("recvVector failed on"),
    // NCCL, transport/net_socket.cc, misc/socket.cc and the text of ncclRemoteError.
    std::string_view("Connection closed by remote peer"),
    std::string_view("remote process exited or there was a network error"),
    std::string_view("ncclRemoteError"),
    // ProcessGroupNCCL: a collective that waited in vain.
    std::string_view("Watchdog caught collective operation timeout"),
    std::string_view("NCCL communicator was aborted"),
    // Open MPI and UCX.
    std::string_view("MPI_ERR_PROC_FAILED"),
    std::string_view("Endpoint is not connected"),
    // Our own runtime: "rank 3 (pid 42 on gpu02) died".
    std::string_view(") died"),
    // The same, told by its agent that another one has failed.
    std::string_view(" was aborted: the round ended: "),
};

/// A pipe breaks between any two processes (a data loader's, a program that a worker writes to), and such an end is the
/// worker's own. These are how the libraries write it of a connection to a peer, on one line.
constexpr std::string_view broken_pipe = "Broken pipe";
constexpr std::array writes_to_a_peer = {
    std::string_view("gloo/transport/"),  // "[../gloo/transport/tcp/pair.cc:357] writev [10.0.0.1]:4321: Broken pipe"
    std::string_view("Call to send"),     // NCCL: "socketProgress: Call to send .. failed: Broken pipe"
    std::string_view("mca_btl_tcp"),      // Open MPI: "[btl_tcp_frag.c:141:mca_btl_tcp_frag_send] .. Broken pipe"
    std::string_view("SocketImpl("),      // c10d: "sendBytes failed on SocketImpl(fd=7, ..): Broken pipe"
    // Our runtime: "the connection with rank 3 (pid 42 on gpu02) broke in all_reduce: Broken pipe".
    std::string_view("the connection with rank "),
};

bool peers_pipe_broke(std::string_view words) {
    for (auto at = words.find(broken_pipe); at != std::string_view::npos; at = words.find(broken_pipe, at + 1)) {
        const auto begin = words.rfind('\n', at) + 1;  // npos + 1 is 0
        const auto line = words.substr(begin, at - begin);
        const auto is_in_it = [&](std::string_view text) { return line.find(text) != std::string_view::npos; };
        if (std::ranges::any_of(writes_to_a_peer, is_in_it)) return true;
    }
    return false;
}

constexpr std::int32_t sigabrt = 6;  // the same on every Linux; cores know no <csignal>

/// "ranks differ in operation 7 of ...: rank 0 (pid 41 on gpu01) runs ..., rank 3 (pid 42 on gpu02) runs ...".
bool names_another_as_odd(std::string_view words, const WorkerName& self) {
    const auto begin = words.rfind("ranks differ in operation ");
    if (begin == std::string_view::npos) return false;
    const auto line = words.substr(begin, words.find('\n', begin) - begin);
    const auto first = line.find(" (pid ");
    const auto second = line.rfind(" (pid ");
    if (first == std::string_view::npos || first == second) return false;
    return !line.substr(second).starts_with(cat(" (pid ", self.pid, " on ", self.host, ")"));
}

/// "the newest checkpoint was not saved: rank 2: write ...: No space left on device".
bool names_another_as_unsaved(std::string_view words, const WorkerName& self) {
    constexpr std::string_view before = "not saved: rank ";
    const auto at = words.rfind(before);
    return at != std::string_view::npos && !words.substr(at + before.size()).starts_with(cat(self.rank, ": "));
}

}  // namespace

std::string_view known_victim_message(std::string_view text) {
    for (const auto known : victim_messages)
        if (text.find(known) != std::string_view::npos) return known;
    return peers_pipe_broke(text) ? broken_pipe : std::string_view();
}

FailureKind failure_kind(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail, CauseKind cause,
                         const WorkerName& self) {
    if (is_from_outside(cause)) return FailureKind::killed;
    if (std::holds_alternative<NotStarted>(end)) return FailureKind::killed;
    const auto words = error_text(message, stderr_tail);
    if (self.pid > 0 && (names_another_as_odd(words, self) || names_another_as_unsaved(words, self)))
        return FailureKind::communication_error;
    const auto* signaled = std::get_if<Signaled>(&end);
    if (signaled != nullptr && signaled->signal != sigabrt) return FailureKind::killed;
    if (!known_victim_message(words).empty()) return FailureKind::communication_error;
    return signaled != nullptr ? FailureKind::killed : FailureKind::worker_error;
}

}  // namespace muster::agent
