// The lines of one node's workers, read from its agent (agent/output/log_wire.h).
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/output/log_wire.h"
#include "launcher/status/http_get.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/client/tls_handshake.h"
#include "rendezvous/tls/psk_channel.h"

namespace muster::launcher {

class NodeLogs : public std::enable_shared_from_this<NodeLogs> {
  public:
    struct Request {
        Endpoint agent;
        std::string target;       ///< log_query.h
        std::vector<Way> ways{};  ///< Tried in this order. At least one.
        /// Of the agent's files, lines that are not given out: `target` does not tell of them.
        std::map<std::string, std::uint64_t> known{};
    };
    struct Handlers {
        /// Called for each message but the clock's. False: no more for now, until resume().
        std::function<bool(agent::LogMessage message)> message;
        /// What the node's clock shows more than ours, once, before all messages.
        std::function<void(std::int64_t ahead_ns)> clock;
        /// Once, the last call. `why` is a sentence without the node; empty: all was sent.
        std::function<void(std::string why)> end;
    };
    /// For the answer to the request, and before it for each address and for TLS.
    static constexpr Duration answer_max = 10s;
    /// Without a byte after the answer: an agent gives a sign of life each second.
    static constexpr Duration silence_max = 10s;

    /// The handlers are called from `io`, which outlives it, as does `resolver`.
    static std::shared_ptr<NodeLogs> start(boost::asio::io_context& io, rendezvous::Resolver& resolver, Request request,
                                           Handlers handlers);
    NodeLogs(boost::asio::io_context& io, rendezvous::Resolver& resolver, Request request, Handlers handlers);

    void resume();
    /// Of the agent's files, behind the lines that were given out.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& positions() const { return reader_.positions(); }
    /// Closes the connection; no handler is called any more.
    void cancel();

  private:
    void connect();
    void connected(Result<boost::asio::ip::tcp::socket> socket);
    void ask();
    /// Counts looks without bytes, and not the time: a viewer that was busy itself takes no agent for silent.
    void watch();
    void read();
    void take(std::string_view wire);
    void take_plain(std::string_view bytes);
    /// False: the answer is a refusal, or not that of an agent.
    bool take_head();
    void give();
    void finish(std::string why);

    boost::asio::io_context& io_;
    rendezvous::Resolver& resolver_;
    Request request_;
    Handlers handlers_;
    std::size_t way_at_ = 0;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer timer_;
    std::unique_ptr<rendezvous::PskChannel> channel_;
    std::weak_ptr<rendezvous::Connector> connector_;  // its handler holds us: the other way round would be a ring
    std::weak_ptr<rendezvous::TlsHandshake> handshake_;
    std::string writing_;
    std::array<char, 16 << 10> input_;
    std::string head_;
    bool has_head_ = false;
    bool has_clock_ = false;
    int silent_looks_ = 0;  ///< In a row.
    Instant asked_at_{};
    std::int64_t asked_ns_ = 0;
    agent::LogWireReader reader_;
    bool is_paused_ = false;
    bool is_reading_ = false;
    bool has_ended_ = false;  ///< The agent said that it has sent all.
};

}  // namespace muster::launcher
