// The daemon's state in etcd, shared by several daemons, one of them the leader. Drives EtcdCore on its own thread; see
// ETCD.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/state/etcd/etcd_core.h"
#include "rendezvous/state/etcd/etcd_place.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

class EtcdState final : public StateStore {
  public:
    /// `self` is this daemon's endpoint for agents; empty: it is no candidate and only reports the leader
    /// (`stands_by`). `post` must outlive the state. Errors: those of the TLS files.
    static Result<std::unique_ptr<EtcdState>> open(EtcdPlace place, std::string self, PostToDaemon post);
    /// Resigns as leader, with 5 s for the last writes and the deletion of records, of which each request has 1 s: a
    /// record that is left behind stays for ever.
    ~EtcdState() override;

    void write(std::uint64_t sequence, std::vector<Record> records) override;
    [[nodiscard]] bool starts_as_follower() const override { return true; }
    [[nodiscard]] bool may_speak() const override;

    /// Deletes the keys when the leader resigns. For a prefix of one job that is over and acknowledged.
    void sweep_at_end();

  private:
    class Implementation;
    explicit EtcdState(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
