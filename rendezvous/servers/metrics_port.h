// GET /metrics of one node (muster --metrics-listen), with the rules of the daemon's status pages: its own user and
// root need nothing on loopback, other users and other hosts need the token of a key.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text/metrics_page.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/secret/job_key.h"

namespace muster::rendezvous {

struct MetricsPortConfig {
    ListenConfig listen;
    JobKeys keys;  ///< Empty: there is no key, and every host that reaches the port is answered.
    /// Called on the owner's thread through `post`, not within the destructor. The owner runs nothing that was posted
    /// after it has destroyed what this needs.
    std::function<std::string(MetricsFormat)> page;
    std::function<void(std::function<void()>)> post;
};

class MetricsPort {
  public:
    /// Binds at once and serves as soon as `loop` runs. `loop` must outlive it. Errors: as Listener::open and
    /// EventLoop::add.
    static Result<std::unique_ptr<MetricsPort>> open(EventLoop& loop, MetricsPortConfig config);
    /// Closes the port and every connection before it returns.
    ~MetricsPort();

    /// As in the address of a page: "[::1]:9501".
    [[nodiscard]] const std::string& place() const { return place_; }

  private:
    struct Server;
    explicit MetricsPort(EventLoop& loop);
    EventLoop& loop_;
    std::string place_;
    std::unique_ptr<Server> server_;
};

}  // namespace muster::rendezvous
