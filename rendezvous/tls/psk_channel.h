// One connection's TLS, without its socket: what came over the wire goes in, plain bytes come out, and the reverse.
//
//   shaking --handshake--> open --close_notify--> ended        any state --error--> failed
//
// Of what the peer wrote, the plain bytes that come out are a prefix, in order, without gaps or additions: whoever sits
// between can delay and cut, and nothing else. `ended` is the peer's word that this was all; a connection that ends
// without it was cut.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/tls/psk_context.h"

struct bio_st;
struct bio_method_st;

namespace muster::rendezvous {

class PskChannel {
  public:
    enum class State { shaking, open, ended, failed };
    /// What is known of a failure.
    enum class Failure {
        none,
        wrong_key,  ///< the peer has not the same key: the handshake shows it here, or the peer reports it
        no_key,     ///< the peer has no key at all, and reports it (`keyless_answer`)
        broken,     ///< not TLS, another TLS, changed bytes, or the peer reports an error
    };

    /// Bytes of the handshake that a peer may send. Ours are less than 1 KiB.
    static constexpr std::size_t handshake_bytes_max = 4'096;
    /// Memory of a channel that waits for its peer's next bytes, and while it holds a part of a record. Measured.
    static constexpr std::size_t idle_bytes = 14 * 1024;
    static constexpr std::size_t busy_bytes = idle_bytes + 17 * 1024;
    /// Every TLS connection begins with this byte, which begins no dialect of the port.
    static constexpr unsigned char first_byte = 0x16;
    /// What a daemon without a key answers, in clear text.
    static std::string_view keyless_answer();

    /// A client's output holds its first words at once.
    explicit PskChannel(std::shared_ptr<const PskContext> context);
    ~PskChannel();
    PskChannel& operator=(PskChannel&&) = delete;

    /// Takes from the front of `wire` and returns how many plain bytes it has written to `place`. Call it until it
    /// returns 0: then `wire` is used up, or the channel has ended or failed. `place` is not empty.
    std::size_t read(std::string_view& wire, std::span<char> place);
    /// Encrypts all of `plain` into the output; only while open. Adds 22 bytes for each 16 KiB or part of them.
    void write(std::string_view plain);
    /// Tells the peer, behind everything written, that nothing more follows. Reading may go on.
    void close();

    /// Bytes for the wire, from the front: also after a failure, whose reason they tell the peer.
    [[nodiscard]] std::string_view output() const { return std::string_view(output_).substr(output_sent_); }
    void drop_output(std::size_t count);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] Failure failure() const { return failure_; }
    /// OpenSSL's words for a failure.
    [[nodiscard]] const std::string& why() const { return why_; }
    /// At a server that is open: the identity whose key the client has proved. Of a failed handshake: the last one that
    /// is known here and that the client named without proving it.
    [[nodiscard]] const std::string& identity() const { return identity_; }

  private:
    friend struct PskCallbacks;

    void shake();
    void fail(int result);
    void judge_handshake();
    static const bio_method_st* wire_method();
    static int take_wire(bio_st* wire, char* to, int size);
    static int give_wire(bio_st* wire, const char* bytes, int size);
    static long control_wire(bio_st* wire, int command, long number, void* pointer);

    const std::shared_ptr<const PskContext> context_;
    ssl_st* connection_;
    State state_ = State::shaking;
    Failure failure_ = Failure::none;
    std::string why_;
    std::string identity_;
    std::string_view input_;  // only during a read
    std::string output_;
    std::size_t output_sent_ = 0;
    std::size_t handshake_bytes_ = 0;
    bool closed_ = false;
};

}  // namespace muster::rendezvous
