#include "worker_runtime/examples/network_store.h"

#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/client/store_client.h"

namespace muster::runtime {

namespace {

class NetworkStore : public SharedStore {
  public:
    explicit NetworkStore(rendezvous::StoreClient client) : client_(std::move(client)) {}

    Result<void> set(const std::string& key, const std::string& value) override { return client_.set(key, value); }
    Result<std::string> wait_get(const std::string& key) override { return client_.get(key); }
    Result<void> erase(const std::string& key) override {
        const auto was_there = client_.delete_key(key);
        if (was_there.has_error()) return was_there.error();
        if (!*was_there) return Error{Errc::not_found, cat("delete ", key, ": it is not there any more")};
        return {};
    }

  private:
    rendezvous::StoreClient client_;
};

}  // namespace

Result<std::unique_ptr<SharedStore>> connect_store(const Endpoint& endpoint) {
    auto client = rendezvous::StoreClient::connect(endpoint, {.connect_timeout = 60s, .timeout = 60s});
    if (client.has_error()) return client.error();
    return std::unique_ptr<SharedStore>(std::make_unique<NetworkStore>(std::move(*client)));
}

}  // namespace muster::runtime
