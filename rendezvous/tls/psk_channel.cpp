#include "rendezvous/tls/psk_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include "rendezvous/base/check.h"

namespace muster::rendezvous {

namespace {

// A large write leaves no large buffer behind.
constexpr std::size_t output_kept_bytes = 4 * 1024;

/// The alert of the peer that a reason of OpenSSL stands for; -1: it is none.
int alert_of(int reason) {
    return reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256 ? reason - SSL_AD_REASON_OFFSET : -1;
}

/// What OpenSSL answers to a client whose identity is unknown, or whose key is another one; and a client to a server
/// that does not prove the key.
bool tells_wrong_key(int alert) {
    return alert == SSL_AD_HANDSHAKE_FAILURE || alert == SSL_AD_ILLEGAL_PARAMETER || alert == SSL_AD_DECRYPT_ERROR ||
           alert == SSL_AD_BAD_RECORD_MAC;
}

constexpr int keyless_alert = SSL_AD_INSUFFICIENT_SECURITY;

}  // namespace

std::string_view PskChannel::keyless_answer() {
    // A record of an alert: type 21, version, two bytes: fatal, and the alert.
    static constexpr char record[] = {21, 3, 3, 0, 2, 2, static_cast<char>(keyless_alert)};
    return {record, sizeof record};
}

/// OpenSSL asks for bytes and gives some; both are a channel's strings.
const BIO_METHOD* PskChannel::wire_method() {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "muster wire");
        MUSTER_CHECK(made != nullptr);
        BIO_meth_set_read(made, PskChannel::take_wire);
        BIO_meth_set_write(made, PskChannel::give_wire);
        BIO_meth_set_ctrl(made, PskChannel::control_wire);
        return made;
    }();
    return method;
}

int PskChannel::take_wire(BIO* wire, char* to, int size) {
    auto& channel = *static_cast<PskChannel*>(BIO_get_data(wire));
    BIO_clear_retry_flags(wire);
    if (channel.input_.empty()) {
        BIO_set_retry_read(wire);
        return -1;
    }
    const std::size_t count = std::min(static_cast<std::size_t>(size), channel.input_.size());
    std::memcpy(to, channel.input_.data(), count);
    channel.input_.remove_prefix(count);
    if (channel.state_ == State::shaking) channel.handshake_bytes_ += count;
    return static_cast<int>(count);
}

int PskChannel::give_wire(BIO* wire, const char* bytes, int size) {
    auto& channel = *static_cast<PskChannel*>(BIO_get_data(wire));
    BIO_clear_retry_flags(wire);
    channel.output_.append(bytes, static_cast<std::size_t>(size));
    return size;
}

long PskChannel::control_wire(BIO*, int command, long, void*) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

PskChannel::PskChannel(std::shared_ptr<const PskContext> context)
    : context_(std::move(context)), connection_(SSL_new(context_->settings())) {
    BIO* wire = BIO_new(wire_method());
    if (connection_ == nullptr || wire == nullptr) throw std::bad_alloc();
    BIO_set_data(wire, this);
    BIO_set_init(wire, 1);
    SSL_set_bio(connection_, wire, wire);  // takes it
    SSL_set_app_data(connection_, this);
    if (context_->is_server())
        SSL_set_accept_state(connection_);
    else
        SSL_set_connect_state(connection_);
    if (!context_->is_server()) shake();
}

PskChannel::~PskChannel() {
    SSL_free(connection_);
}

void PskChannel::shake() {
    ERR_clear_error();
    const int result = SSL_do_handshake(connection_);
    if (result != 1) return fail(result);
    judge_handshake();
}

/// OpenSSL has finished; what it may not know to be necessary is looked at here.
void PskChannel::judge_handshake() {
    const unsigned char* protocol = nullptr;
    unsigned int protocol_size = 0;
    SSL_get0_alpn_selected(connection_, &protocol, &protocol_size);
    // "Reused" is how OpenSSL says that the pre-shared key was used, and no certificate.
    if (SSL_session_reused(connection_) == 1 && SSL_version(connection_) == TLS1_3_VERSION && protocol_size > 0) {
        state_ = State::open;
        return;
    }
    state_ = State::failed;
    failure_ = Failure::broken;
    why_ = "the handshake did not use the key";
}

/// `result` of an OpenSSL call, which may only mean that more bytes are needed.
void PskChannel::fail(int result) {
    const int kind = SSL_get_error(connection_, result);
    if (kind == SSL_ERROR_WANT_READ && (state_ != State::shaking || handshake_bytes_ <= handshake_bytes_max)) return;
    if (kind == SSL_ERROR_ZERO_RETURN && state_ == State::open) {
        state_ = State::ended;
        return;
    }
    const unsigned long code = ERR_peek_error();
    const int reason = ERR_GET_REASON(code);
    const int alert = alert_of(reason);
    const bool shook = state_ == State::shaking;
    // A server knows none of the names that the client has for its key; or it does, and the proof is wrong.
    const bool unknown = shook && context_->is_server() && reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM;
    const bool unproven = reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_BAD_PSK_IDENTITY;
    state_ = State::failed;
    if (shook && !context_->is_server() && alert == keyless_alert)
        failure_ = Failure::no_key;
    else if (shook && (unknown || unproven || (!context_->is_server() && tells_wrong_key(alert))))
        failure_ = Failure::wrong_key;
    else
        failure_ = Failure::broken;
    const char* words = ERR_reason_error_string(code);
    why_ = kind == SSL_ERROR_WANT_READ ? "its handshake is too long" : words != nullptr ? words : "no TLS";
    ERR_clear_error();
}

std::size_t PskChannel::read(std::string_view& wire, std::span<char> place) {
    input_ = wire;
    if (state_ == State::shaking) shake();
    std::size_t count = 0;
    if (state_ == State::open) {
        ERR_clear_error();
        const int size = static_cast<int>(std::min<std::size_t>(place.size(), INT_MAX));
        const int result = SSL_read(connection_, place.data(), size);
        if (result > 0)
            count = static_cast<std::size_t>(result);
        else
            fail(result);
    }
    wire = std::exchange(input_, {});
    return count;
}

void PskChannel::write(std::string_view plain) {
    if (plain.empty() || state_ == State::failed || closed_) return;
    MUSTER_CHECK(state_ != State::shaking);
    ERR_clear_error();
    for (; !plain.empty(); plain.remove_prefix(std::min<std::size_t>(plain.size(), INT_MAX))) {
        const int size = static_cast<int>(std::min<std::size_t>(plain.size(), INT_MAX));
        // The wire takes everything at once, so this is all or an error.
        if (const int result = SSL_write(connection_, plain.data(), size); result != size) return fail(result);
    }
}

void PskChannel::close() {
    if (state_ == State::shaking || state_ == State::failed || std::exchange(closed_, true)) return;
    ERR_clear_error();
    SSL_shutdown(connection_);
}

void PskChannel::drop_output(std::size_t count) {
    output_sent_ += count;
    if (output_sent_ < output_.size()) return;
    output_.clear();
    output_sent_ = 0;
    if (output_.capacity() > output_kept_bytes) output_.shrink_to_fit();
}

}  // namespace muster::rendezvous
