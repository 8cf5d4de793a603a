#include "rendezvous/wire/native/secret.h"

#include "rendezvous/base/text/bytes.h"

namespace muster::native {

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

}  // namespace muster::native
