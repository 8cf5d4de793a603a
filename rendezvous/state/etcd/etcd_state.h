// The daemon's state in etcd, shared with other daemons of which one leads: carries out what EtcdCore decides, on a
// thread of its own. ETCD.md has the whole.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/state/etcd/etcd_core.h"
#include "rendezvous/state/etcd/etcd_place.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

class EtcdState final : public StateStore {
  public:
    /// `self` is where agents find this daemon; empty: it only tells who leads (`stands_by`). `post` outlives the
    /// state. Errors are those of the TLS files.
    static Result<std::unique_ptr<EtcdState>> open(EtcdPlace place, std::string self, PostToDaemon post);
    /// Gives the lead away, if etcd hears it within a second.
    ~EtcdState() override;

    void write(std::uint64_t sequence, std::vector<Record> records) override;
    [[nodiscard]] bool is_shared() const override { return true; }
    [[nodiscard]] bool may_speak() const override;

    /// Whoever ends as the leader removes what is kept: the one job is over, and everybody has heard it.
    void sweep_at_end();
    /// What is logged of etcd, for others too.
    std::function<void(std::string line)> remarks;

  private:
    class Implementation;
    explicit EtcdState(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
