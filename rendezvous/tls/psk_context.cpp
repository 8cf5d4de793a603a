#include "rendezvous/tls/psk_context.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/tls/psk_channel.h"

namespace muster::rendezvous {

namespace {

// As ALPN has it on the wire: a length and the name.
constexpr std::array<unsigned char, 9> protocol{8, 'm', 'u', 's', 't', 'e', 'r', '/', '1'};

constexpr std::size_t key_bytes = 32;

/// A session as OpenSSL wants a pre-shared key. Null where the key is not one.
SSL_SESSION* session_of(SSL* connection, std::string_view key) {
    constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
    const SSL_CIPHER* cipher = SSL_CIPHER_find(connection, aes_128_gcm_sha256.data());
    SSL_SESSION* session = key.size() == key_bytes && cipher != nullptr ? SSL_SESSION_new() : nullptr;
    const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
    if (session == nullptr ||
        (SSL_SESSION_set1_master_key(session, bytes, key.size()) == 1 && SSL_SESSION_set_cipher(session, cipher) == 1 &&
         SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1))
        return session;
    SSL_SESSION_free(session);
    return nullptr;
}

}  // namespace

/// Called by OpenSSL. Errors here are "no key": the handshake then fails.
struct PskCallbacks {
    static int find(SSL* connection, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
        auto& channel = *static_cast<PskChannel*>(SSL_get_app_data(connection));
        *session = nullptr;
        const std::string_view named(reinterpret_cast<const char*>(identity), size);
        auto key = channel.context_->find_key_(named);
        *session = session_of(connection, key);
        OPENSSL_cleanse(key.data(), key.size());
        if (*session != nullptr) channel.identity_ = named;
        return 1;
    }

    static int use(SSL* connection, const EVP_MD*, const unsigned char** identity, std::size_t* size,
                   SSL_SESSION** session) {
        const auto& context = *static_cast<PskChannel*>(SSL_get_app_data(connection))->context_;
        *session = session_of(connection, context.key_);
        *identity = reinterpret_cast<const unsigned char*>(context.identity_.data());
        *size = context.identity_.size();
        return *session != nullptr ? 1 : 0;
    }

    static int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                               const unsigned char* offered, unsigned int size, void*) {
        if (std::search(offered, offered + size, protocol.begin(), protocol.end()) == offered + size)
            return SSL_TLSEXT_ERR_ALERT_FATAL;
        *chosen = protocol.data() + 1;
        *chosen_size = protocol[0];
        return SSL_TLSEXT_ERR_OK;
    }
};

PskContext::PskContext(FindKey find_key, std::string identity, std::string key)
    : find_key_(std::move(find_key)), identity_(std::move(identity)), key_(std::move(key)) {}

std::shared_ptr<const PskContext> PskContext::server(FindKey find_key) {
    return std::shared_ptr<const PskContext>(new PskContext(std::move(find_key), {}, {}));
}

std::shared_ptr<const PskContext> PskContext::client(std::string identity, std::string key) {
    MUSTER_CHECK(key.size() == key_bytes, key.size());
    return std::shared_ptr<const PskContext>(new PskContext({}, std::move(identity), std::move(key)));
}

SSL_CTX* PskContext::settings() const {
    std::call_once(is_set_up_, [this] { set_up(); });
    return settings_;
}

void PskContext::set_up() const {
    settings_ = SSL_CTX_new(is_server() ? TLS_server_method() : TLS_client_method());
    MUSTER_CHECK(settings_ != nullptr);
    SSL_CTX_set_min_proto_version(settings_, TLS1_3_VERSION);
    SSL_CTX_set_max_proto_version(settings_, TLS1_3_VERSION);
    SSL_CTX_clear_options(settings_, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_options(settings_, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_num_tickets(settings_, 0);
    SSL_CTX_set_session_cache_mode(settings_, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_early_data(settings_, 0);
    SSL_CTX_set_mode(settings_, SSL_MODE_RELEASE_BUFFERS);
    // A server that shows a certificate instead of the key is refused, because no authority is trusted.
    SSL_CTX_set_verify(settings_, is_server() ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
    const bool is_set = SSL_CTX_set_ciphersuites(settings_, "TLS_AES_128_GCM_SHA256") == 1 &&
                        SSL_CTX_set1_groups_list(settings_, "X25519") == 1;
    MUSTER_CHECK(is_set);
    if (is_server()) {
        SSL_CTX_set_psk_find_session_callback(settings_, PskCallbacks::find);
        SSL_CTX_set_alpn_select_cb(settings_, PskCallbacks::choose_protocol, nullptr);
    } else {
        SSL_CTX_set_psk_use_session_callback(settings_, PskCallbacks::use);
        SSL_CTX_set_alpn_protos(settings_, protocol.data(), protocol.size());
    }
}

PskContext::~PskContext() {
    SSL_CTX_free(settings_);
    OPENSSL_cleanse(key_.data(), key_.size());
}

}  // namespace muster::rendezvous
