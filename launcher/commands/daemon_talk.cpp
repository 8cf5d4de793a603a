#include "launcher/commands/daemon_talk.h"

#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/secret/job_secret.h"

namespace muster::launcher {

Result<DaemonTalk> DaemonTalk::begin(const SocketAddress& daemon, const native::Hello& hello,
                                     const std::vector<rendezvous::JobKey>& keys, Instant deadline,
                                     std::optional<std::string>* leader) {
    bool wrong_key = false;
    const auto with = [&](const rendezvous::JobKey& key) {
        wrong_key = false;
        return begin_with(key, daemon, hello, deadline, leader, wrong_key);
    };
    auto talk = with(keys.empty() ? rendezvous::JobKey() : keys.front());
    for (std::size_t at = 1; wrong_key && at < keys.size(); ++at) {
        auto other = with(keys[at]);
        if (!wrong_key) return other;
    }
    return talk;
}

Result<DaemonTalk> DaemonTalk::begin_with(const rendezvous::JobKey& key, const SocketAddress& daemon,
                                          native::Hello hello, Instant deadline, std::optional<std::string>* leader,
                                          bool& wrong_key) {
    auto socket = MUSTER_TRY(rendezvous::BlockingSocket::connect(daemon, deadline));
    DaemonTalk talk(DaemonSocket(std::move(socket)), deadline);
    const bool speaks_tls = !key.empty() && !is_loopback(daemon.numeric());
    Result<void> known;
    if (speaks_tls) known = talk.socket_.begin_tls(rendezvous::control_key(key, hello.job), deadline);
    talk.wrong_key_ = talk.socket_.has_other_key();
    if (known) known = speaks_tls || key.empty() ? talk.say(hello) : talk.prove(std::move(hello), key);
    if (leader != nullptr) *leader = talk.leader_;
    wrong_key = talk.wrong_key_;
    if (!known) return known.error();
    return talk;
}

/// In clear text the daemon asks for a proof, and gives its own.
Result<void> DaemonTalk::prove(native::Hello hello, const rendezvous::JobKey& key) {
    const auto secret = rendezvous::control_hash(key);
    hello.challenge = secret(rendezvous::random_nonce());
    MUSTER_TRY(say(hello));
    const auto asked = MUSTER_TRY(hear<native::Challenge>());
    const auto proof = native::proof_of(secret, native::Prover::agent, hello, asked.nonce);
    if (auto said = say(native::Proof{proof}); !said) return said;
    const auto proven = MUSTER_TRY(hear<native::Challenge>());
    wrong_key_ = !same_digest(native::proof_of(secret, native::Prover::daemon, hello, asked.nonce), proven.proof);
    return wrong_key_ ? Error{Errc::permission_denied, "it does not know the job's secret"} : Result<void>();
}

Result<void> DaemonTalk::say(const native::Message& message) {
    std::string bytes;
    native::append_frame(bytes, message);
    return socket_.send(bytes, deadline_);
}

Result<native::Message> DaemonTalk::next() {
    for (;;) {
        auto message = MUSTER_TRY(reader_.next());
        if (message) {
            if (const auto* refused = std::get_if<native::Refused>(&*message)) {
                wrong_key_ = refused->reason == native::RefusalReason::secret;
                return Error{Errc::permission_denied, refused->why};
            }
            if (const auto* stalled = std::get_if<native::StateStalled>(&*message)) {
                stall_ = cat(": it cannot write its state: ", stalled->why);
                continue;
            }
            if (const auto* other = std::get_if<native::NotLeader>(&*message)) {
                leader_ = other->leader;
                return Error{Errc::unreachable, leader_->empty()
                                                    ? cat("it is not the leader, and no leader is known", stall_)
                                                    : cat("it is not the leader; the leader is ", *leader_)};
            }
            return *std::move(message);
        }
        reader_.append(MUSTER_TRY(socket_.receive(deadline_)));
    }
}

Result<void> DaemonTalk::end() {
    MUSTER_TRY(socket_.end_sending(deadline_));
    for (;;)
        if (const auto message = next(); !message)
            return message.error().code == Errc::peer_closed ? Result<void>() : Result<void>(message.error());
}

}  // namespace muster::launcher
