#include "launcher/daemon_command.h"

#include <unistd.h>

#include "launcher/environment_probe.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/text.h"
#include "rendezvous/client/blocking_socket.h"
#include "rendezvous/client/name_lookup.h"
#include "rendezvous/client/reachable.h"
#include "rendezvous/net/job_secret.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

/// Messages over one connection, each wait with the same deadline.
class Talk {
  public:
    Talk(rendezvous::BlockingSocket socket, Instant deadline) : socket_(std::move(socket)), deadline_(deadline) {}

    Result<void> say(const native::Message& message) {
        std::string bytes;
        native::append_frame(bytes, message);
        return socket_.send(bytes, deadline_);
    }

    /// The next message of this kind. Whatever comes instead is an error; a refusal is the daemon's own sentence.
    template <class Wanted>
    Result<Wanted> hear() {
        for (;;) {
            auto message = reader_.next();
            if (!message) return message.error();
            if (auto& whole = message.value()) {
                if (auto* wanted = std::get_if<Wanted>(&*whole)) return std::move(*wanted);
                if (const auto* refused = std::get_if<native::Refused>(&*whole))
                    return Error{Errc::permission_denied, refused->why};
                if (const auto* other = std::get_if<native::NotLeader>(&*whole))
                    return Error{Errc::unreachable, other->leader.empty()
                                                        ? std::string("it does not lead just now")
                                                        : cat("it does not lead; ask ", other->leader)};
                return Error{Errc::bad_frame, cat("got ", native::name(*whole), " where another answer was due")};
            }
            const auto bytes = socket_.receive(deadline_);
            if (!bytes) return bytes.error();
            reader_.append(*bytes);
        }
    }

  private:
    rendezvous::BlockingSocket socket_;
    Instant deadline_;
    native::FrameReader reader_{native::Sender::daemon};
};

Result<rendezvous::BlockingSocket> connect_to(const Endpoint& endpoint, Instant deadline) {
    const auto addresses = rendezvous::look_up(endpoint, deadline);
    if (!addresses) return addresses.error();
    Error last{Errc::not_found, cat(endpoint.host, " has no address")};
    for (const auto& address : rendezvous::reachable_first(*addresses, deadline)) {
        auto socket = rendezvous::BlockingSocket::connect(address, deadline);
        if (socket) return socket;
        last = socket.error();
    }
    return last;
}

Result<native::CommandAnswer> converse(Talk& talk, const std::string& job, const native::Command& command,
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
    if (!native::same_proof(native::proof_of(secret, native::Prover::daemon, hello, asked->nonce), proven->proof))
        return Error{Errc::permission_denied, "it does not know the job's secret"};
    if (auto said = talk.say(command); !said) return said.error();
    return talk.hear<native::CommandAnswer>();
}

}  // namespace

Result<native::CommandAnswer> command_daemon(const Endpoint& endpoint, const std::string& job,
                                             const native::Command& command, const native::KeyedHash& secret,
                                             Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    auto socket = connect_to(endpoint, deadline);
    if (!socket) return Error{socket.error().code, cat(describe(endpoint), ": ", socket.error().context)};
    Talk talk(std::move(*socket), deadline);
    auto answer = converse(talk, job, command, secret);
    if (!answer) return Error{answer.error().code, cat(describe(endpoint), ": ", answer.error().context)};
    return answer;
}

}  // namespace muster::launcher
