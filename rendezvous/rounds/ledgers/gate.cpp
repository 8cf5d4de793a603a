#include "rendezvous/rounds/ledgers/gate.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

std::string how_to_copy(const NodeIdentity& node) {
    return cat("copy it from the host of the rendezvous (muster key show | ssh ",
               node.host.empty() ? std::string("NODE") : node.host,
               " muster key set), or set the same MUSTER_SECRET_FILE or MUSTER_KEY");
}

}  // namespace

std::string Gate::objection(const std::string& who, const native::Hello& hello, bool is_private) const {
    if (!is_locked())
        return cat("this rendezvous has no secret, and ", who,
                   " has one; give the daemon the same secret (muster key --help), or start the job with --insecure, "
                   "which leaves ~/.muster/key aside");
    if (hello.challenge.empty())
        return cat(who, " has no secret, and this rendezvous has one; ", how_to_copy(hello.node));
    if (is_private) return {};
    return cat(who,
               " speaks in clear text, and a rendezvous with a secret speaks TLS with other hosts; install one version "
               "of muster on all nodes");
}

Gate::Question Gate::ask(std::string_view job) {
    auto hashes = hashes_(job);
    auto nonce = hashes.front()(cat("muster nonce ", ++nonce_count_, ' ', seed_));
    return {std::move(nonce), std::move(hashes)};
}

std::optional<std::string> Gate::answer(const Question& asked, const native::Hello& hello, std::string_view proof) {
    for (const auto& hash : asked.hashes)
        if (same_digest(native::proof_of(hash, native::Prover::agent, hello, asked.nonce), proof))
            return native::proof_of(hash, native::Prover::daemon, hello, asked.nonce);
    return std::nullopt;
}

void Gate::note_wrong(const std::string& source, Instant now) {
    auto [found, added] = sources_.try_emplace(source);
    if (added || now >= found->second.since + memory) found->second = {0, now};
    ++found->second.wrong_count;
    if (sources_.size() <= sources_max) return;
    sources_.erase(std::min_element(sources_.begin(), sources_.end(),
                                    [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
}

bool Gate::is_shut_for(const std::string& source, Instant now) const {
    const auto found = sources_.find(source);
    return found != sources_.end() && found->second.wrong_count >= wrong_max && now < found->second.since + memory;
}

std::string wrong_proof(const std::string& who, const native::Hello& hello) {
    return cat(who, " has another secret than this rendezvous, or a key of another job than '", hello.job, "'; ",
               how_to_copy(hello.node));
}

}  // namespace muster::rendezvous
