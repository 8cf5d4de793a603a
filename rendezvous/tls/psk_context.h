// What the channels of one side share: which TLS they speak, and where keys come from.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

struct ssl_ctx_st;
struct ssl_st;

namespace muster::rendezvous {

/// TLS 1.3 only, TLS_AES_128_GCM_SHA256, psk_dhe_ke with X25519, ALPN "muster/1". No certificates, session tickets,
/// early data or compression. Channels keep it alive. Any thread may begin a channel. OpenSSL is set up when the first
/// one begins: a program that needs no TLS does not pay the milliseconds.
class PskContext {
  public:
    /// The 32-byte key of the identity that a client names; empty: unknown. Must be callable from each thread that
    /// reads a channel.
    using FindKey = std::function<std::string(std::string_view identity)>;

    static std::shared_ptr<const PskContext> server(FindKey find_key);
    /// `key` has 32 bytes. A server learns `identity` in clear text.
    static std::shared_ptr<const PskContext> client(std::string identity, std::string key);

    ~PskContext();
    PskContext& operator=(PskContext&&) = delete;

  private:
    friend class PskChannel;
    friend struct PskCallbacks;

    PskContext(FindKey find_key, std::string identity, std::string key);
    [[nodiscard]] bool is_server() const { return static_cast<bool>(find_key_); }
    [[nodiscard]] ssl_ctx_st* settings() const;
    void set_up() const;

    const FindKey find_key_;  // a server's
    const std::string identity_;
    std::string key_;
    mutable std::once_flag is_set_up_;
    mutable ssl_ctx_st* settings_ = nullptr;
};

}  // namespace muster::rendezvous
