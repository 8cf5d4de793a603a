// Reads a daemon's secrets again while it serves: on a thread, because the file may be on a file server that does not
// answer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "rendezvous/net/event_loop.h"
#include "rendezvous/secret/find_secret.h"

namespace muster::rendezvous {

class SecretReload final : public EventLoop::Ticker {
  public:
    using Secrets = std::vector<Secret>;
    using Read = std::function<Result<Secrets>()>;

    /// `secrets` is replaced on the loop's thread; null: the daemon was started without. `read` is called on another
    /// thread, which may outlive this object. The log names a read that takes longer than `patience`.
    SecretReload(EventLoop& loop, std::shared_ptr<Secrets> secrets, Read read, Duration patience = 10s);
    /// Abandons a read that has not ended.
    ~SecretReload() override;
    SecretReload& operator=(SecretReload&&) = delete;

    /// On the loop's thread. Secrets that cannot be read change nothing, and the log says why. During a read, one more
    /// follows it.
    void start();
    Instant turn(Instant now) override;

  private:
    struct Mailbox;
    void finish(Result<Secrets> found);

    EventLoop& loop_;
    const std::shared_ptr<Secrets> secrets_;
    const Read read_;
    const Duration patience_;
    const std::shared_ptr<Mailbox> mailbox_;
    bool reading_ = false;
    bool again_ = false;
    Instant late_at_ = no_deadline;
};

}  // namespace muster::rendezvous
