#include "launcher/commands/daemon_command.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "launcher/host/environment_probe.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/sockets/reachable.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/store_client/blocking_socket.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

/// Timeout for one of several daemons: another one may be the leader.
constexpr Duration attempt_limit = 3s;
/// Pause between two passes over all daemons. An election takes 1 to 2 s.
constexpr Duration ask_again_after = 200ms;

/// Messages over one connection. All waits share one deadline.
class DaemonConnection {
  public:
    DaemonConnection(rendezvous::BlockingSocket socket, Instant deadline)
        : socket_(std::move(socket)), deadline_(deadline) {}

    Result<void> say(const native::Message& message) {
        std::string bytes;
        native::append_frame(bytes, message);
        return socket_.send(bytes, deadline_);
    }

    /// Receives a message of this type. Any other message is an error. The error of a refusal is the daemon's own
    /// sentence.
    template <class Wanted>
    Result<Wanted> hear() {
        for (;;) {
            auto message = reader_.next();
            if (!message) return message.error();
            if (auto& whole = message.value()) {
                if (auto* wanted = std::get_if<Wanted>(&*whole)) return std::move(*wanted);
                if (const auto* refused = std::get_if<native::Refused>(&*whole))
                    return Error{Errc::permission_denied, refused->why};
                if (const auto* other = std::get_if<native::NotLeader>(&*whole)) {
                    leader_ = other->leader;
                    return Error{Errc::unreachable, leader_.empty()
                                                        ? std::string("it is not the leader, and no leader is known")
                                                        : cat("it is not the leader; the leader is ", leader_)};
                }
                return Error{Errc::bad_frame, cat("it answered with an unexpected message, ", native::name(*whole),
                                                  "; is it a different version of muster?")};
            }
            const auto bytes = socket_.receive(deadline_);
            if (!bytes) return bytes.error();
            reader_.append(*bytes);
        }
    }

    /// The leader's endpoint according to the daemon. Empty: unknown.
    [[nodiscard]] const std::string& leader() const { return leader_; }
    /// True once the command was sent: from then on it may have been executed.
    bool command_said = false;

  private:
    rendezvous::BlockingSocket socket_;
    Instant deadline_;
    std::string leader_;
    native::FrameReader reader_{native::Sender::daemon};
};

Result<rendezvous::BlockingSocket> connect_to(const Endpoint& endpoint, Instant deadline) {
    const auto addresses = look_up(endpoint, deadline);
    if (!addresses) return addresses.error();
    Error last{Errc::not_found, cat(endpoint.host, " has no address")};
    for (const auto& address : rendezvous::reachable_first(*addresses, deadline)) {
        auto socket = rendezvous::BlockingSocket::connect(address, deadline);
        if (socket) return socket;
        last = socket.error();
    }
    return last;
}

Result<native::CommandAnswer> converse(DaemonConnection& talk, const std::string& job, const native::Command& command,
                                       const native::KeyedHash& secret) {
    native::Hello hello;
    hello.job = job;
    hello.node = {host_name(), ::getpid(), 0};
    hello.challenge = secret(rendezvous::random_nonce());
    if (auto said = talk.say(hello); !said) return said.error();
    const auto asked = talk.hear<native::Challenge>();
    if (!asked) return asked.error();
    const auto proof = native::proof_of(secret, native::Prover::agent, hello, asked->nonce);
    if (auto said = talk.say(native::Proof{proof}); !said) return said.error();
    const auto proven = talk.hear<native::Challenge>();
    if (!proven) return proven.error();
    if (!same_digest(native::proof_of(secret, native::Prover::daemon, hello, asked->nonce), proven->proof))
        return Error{Errc::permission_denied, "it does not know the job's secret"};
    talk.command_said = true;
    if (auto said = talk.say(command); !said) return said.error();
    return talk.hear<native::CommandAnswer>();
}

struct Attempt {
    Result<native::CommandAnswer> answer;
    std::string leader;  ///< The leader's endpoint as the daemon reported it.
    bool is_last = false;
};

Attempt ask_one(const Endpoint& endpoint, const std::string& job, const native::Command& command,
                const native::KeyedHash& secret, Instant deadline) {
    const auto named = [&](const Error& error) {
        return Error{error.code, cat(describe(endpoint), ": ", error.context)};
    };
    auto socket = connect_to(endpoint, deadline);
    if (!socket) return {named(socket.error()), {}, false};
    DaemonConnection talk(std::move(*socket), deadline);
    auto answer = converse(talk, job, command, secret);
    if (answer) return {std::move(answer), {}, true};
    // A standby daemon takes no command. A refusal is final.
    const bool stands_by = answer.error().code == Errc::unreachable;
    const bool refused = answer.error().code == Errc::permission_denied;
    return {named(answer.error()), talk.leader(), refused || (talk.command_said && !stands_by)};
}

}  // namespace

Result<native::CommandAnswer> command_daemon(const std::vector<Endpoint>& daemons, const std::string& job,
                                             const native::Command& command, const native::KeyedHash& secret,
                                             Duration limit) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto deadline = now() + limit;
    std::vector<std::string> said(daemons.size());
    for (;;) {
        std::optional<Endpoint> leader;
        for (std::size_t i = 0; i < daemons.size() && now() < deadline; ++i) {
            const auto until = daemons.size() == 1 ? deadline : std::min(deadline, now() + attempt_limit);
            auto attempt = ask_one(daemons[i], job, command, secret, until);
            if (attempt.answer || attempt.is_last) return std::move(attempt.answer);
            said[i] = attempt.answer.error().context;
            if (auto place = parse_endpoint(attempt.leader, 0); place && place->port != 0) leader = *std::move(place);
            if (!leader) continue;
            attempt = ask_one(*leader, job, command, secret, std::min(deadline, now() + attempt_limit));
            if (attempt.answer || attempt.is_last) return std::move(attempt.answer);
            leader.reset();  // It has lost the leadership.
        }
        if (daemons.size() == 1 || now() + ask_again_after >= deadline)
            return Error{Errc::unreachable, muster::join(said, "; ")};
        std::this_thread::sleep_for(ask_again_after);
    }
}

}  // namespace muster::launcher
