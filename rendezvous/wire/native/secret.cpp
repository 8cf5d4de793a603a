#include "rendezvous/wire/native/secret.h"

#include "rendezvous/base/text/bytes.h"

namespace muster::native {

namespace {

std::string described(std::string_view what, const PeerAsk& ask) {
    std::string text;
    ByteWriter out(text);
    out.blob<std::uint32_t>(what);
    out.number(ask.round);
    out.number(ask.group_rank);
    out.number(ask.asker);
    out.number(ask.tree_size);
    out.number<std::uint8_t>(ask.lost ? 1 : 0);
    out.number(ask.covered);
    out.number(ask.age_ns);
    out.number(ask.echo);
    out.number(ask.held_ns);
    out.blob<std::uint32_t>(ask.leader);
    out.number(ask.number);
    out.blob<std::uint32_t>(ask.nonce);
    return text;
}

}  // namespace

std::string proof_of(const KeyedHash& hash, Prover prover, const Hello& hello, std::string_view nonce) {
    std::string text;
    ByteWriter out(text);
    // Each with its length, so that no two different sets of parts make the same text.
    out.blob<std::uint32_t>(prover == Prover::agent ? "muster agent" : "muster daemon");
    out.blob<std::uint32_t>(hello.job);
    out.blob<std::uint32_t>(hello.node.host);
    out.number(hello.node.incarnation);
    out.number(hello.connection);
    out.blob<std::uint32_t>(hello.challenge);
    out.blob<std::uint32_t>(nonce);
    return hash(text);
}

std::string proof_of(const KeyedHash& hash, const PeerAsk& ask, std::string_view answered_nonce) {
    std::string text = described("muster question", ask);
    ByteWriter out(text);
    out.blob<std::uint32_t>(answered_nonce);
    return hash(text);
}

std::string proof_of(const KeyedHash& hash, const PeerAsk& ask, const PeerAnswer& answer) {
    std::string text = described("muster answer", ask);
    ByteWriter out(text);
    out.number(answer.round);
    out.number<std::uint8_t>(answer.leader_lost ? 1 : 0);
    out.number(answer.all_age_ns);
    out.blob<std::uint32_t>(answer.leader);
    out.blob<std::uint32_t>(answer.nonce);
    return hash(text);
}

}  // namespace muster::native
