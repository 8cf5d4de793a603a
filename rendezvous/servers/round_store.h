// The workers' store of one round: an empty TCPStore on its own port. Every agent opens one before it joins; the round
// uses that of group rank 0. Its clients' connections are closed after the round, so a key of round k can never be
// read in round k+1.
//
// The same port serves PeerAsk of the native dialect: other agents ask whether this node has lost the daemon too. And
// it serves the workers' log files to viewers (muster logs JOB), by HTTP inside TLS with the job's key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// Posts work to the owner's thread, e.g. [&io](auto work) { boost::asio::post(io, std::move(work)); }.
using PostToOwner = std::function<void(std::function<void()>)>;

/// What the port serves in a round.
struct RoundService {
    bool store = true;  ///< this node has the round's store. Else only PeerAsk is answered.
    /// Addresses from which the round's nodes come. Those of this host and of ListenConfig::sources are served as well.
    std::vector<std::string> clients;
    /// 32 bytes (--store-door): other hosts reach the store only by TLS with this key of the round. Empty: in clear
    /// text.
    std::string key{};
};

/// By which a client of the store names RoundService::key.
inline constexpr std::string_view store_identity = "store";

struct LogPort {
    /// Of each key of the job that is accepted (logs_key). Empty: there is no TLS for viewers.
    std::vector<ControlKey> keys{};
    HttpDialect::Streams streams{};  ///< On the loop's thread. Empty: no log files are served.
    HttpDialect::LatePages late{};   ///< As `streams`, and asked before.
    HttpDialect::Pages pages{};      ///< To requests that get no stream.
};

struct RoundStoreConfig {
    ListenConfig listen;  ///< all addresses and an ephemeral port by default; --store-port gives a range
    NetLimits limits;
    /// Called on the owner's thread through `post`, never after the destructor. A question that it leaves
    /// unanswered closes the connection, and so do all questions where this is empty.
    std::function<std::optional<native::PeerAnswer>(const native::PeerAsk&)> answer;
    PostToOwner post;
    /// Connections wait in the kernel's queue until `serve`: before the round is sealed nobody knows its nodes. False:
    /// the store and PeerAsk are served to all of ListenConfig::sources, at once.
    bool waits = false;
    LogPort logs{};
};

class RoundStore {
  public:
    /// Binds at once and serves as soon as `loop` runs. `loop` must outlive it. Errors: as Listener::open and
    /// EventLoop::add.
    static Result<std::unique_ptr<RoundStore>> open(EventLoop& loop, RoundStoreConfig config);
    /// Closes the port and every connection before it returns; clients see the end of the stream at once.
    ~RoundStore();

    /// Begins to serve, if it waits. Later calls do nothing. Errors: as EventLoop::add.
    Result<void> serve(const RoundService& service);
    /// Closes the port and every connection but those of viewers of log files, which may read to the end. False: there
    /// are none.
    bool retire();
    /// Calls `done` once on the loop's thread, when all viewers have been sent everything. One that takes nothing for
    /// 1 s is not waited for; one that reads slowly is. Never after the destructor. Once retired.
    void when_read(std::function<void()> done);
    [[nodiscard]] std::uint16_t port() const;

  private:
    class Implementation;
    explicit RoundStore(EventLoop& loop);
    EventLoop& loop_;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
