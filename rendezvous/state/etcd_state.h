// The daemon's state in etcd, shared with other daemons of which one leads: carries out what EtcdCore decides, on a
// thread of its own. ETCD.md has the whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/state/etcd_core.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

struct EtcdPlace {
    std::vector<Endpoint> members;
    std::string prefix = "muster/";
};

/// "a:2379,b:2379/PREFIX", what follows "etcd://". invalid_argument with what is wrong.
Result<EtcdPlace> parse_etcd_place(std::string_view text);

class EtcdState final : public StateStore {
  public:
    /// `self` is where agents find this daemon. `post` outlives the state.
    static Result<std::unique_ptr<EtcdState>> open(EtcdPlace place, std::string self, PostToDaemon post);
    /// Gives the lead away, if etcd hears it within a second.
    ~EtcdState() override;

    void write(std::uint64_t sequence, std::vector<Record> records) override;
    [[nodiscard]] bool is_shared() const override { return true; }
    [[nodiscard]] bool may_speak() const override;

  private:
    class Implementation;
    explicit EtcdState(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
