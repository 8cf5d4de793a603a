// The launcher's store for the ranks of one round: for the trainer's keys, and for meetings.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/store.h"
#include "rendezvous/store_client/store_client.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// Keys under a prefix. Thread-safe: calls use the connection one after another.
class RoundStore final : public Store, public MeetingPlace {
  public:
    RoundStore(rendezvous::StoreClient client, std::string prefix);

    /// Another prefix over the same connection.
    [[nodiscard]] std::unique_ptr<RoundStore> below(std::string_view more) const;

    Result<void> set(std::string_view key, std::string_view value) override;
    Result<std::string> get(std::string_view key, Duration timeout) override;
    Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
    Result<bool> erase(std::string_view key) override;

    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override;
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) override;

    /// Sets the key and reads it back, in at most two seconds; skipped while another thread waits at the store.
    void post_value(std::string_view key, std::string_view value);

    [[nodiscard]] std::string address() const;
    /// Ends every wait on this connection, in this store and in those below(), if there are any left.
    [[nodiscard]] std::function<void()> interrupter() const;

  private:
    struct Connection {
        explicit Connection(rendezvous::StoreClient connected) : client(std::move(connected)) {}
        std::mutex mutex;
        rendezvous::StoreClient client;
    };
    using Keys = std::vector<std::string>;

    RoundStore(std::shared_ptr<Connection> connection, std::string prefix);
    Result<std::size_t> wait_for(const Keys& keys, Instant deadline);
    Result<std::size_t> watch_for(const Keys& keys, const MeetingWait& wait);
    Result<bool> are_there(const Keys& keys);

    const std::shared_ptr<Connection> connection_;
    const std::string prefix_;
};

}  // namespace muster::runtime
