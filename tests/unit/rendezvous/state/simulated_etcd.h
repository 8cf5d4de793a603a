// An etcd of one's own, as far as its JSON gateway is used here: revisions, transactions, leases, and its limits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/base/time.h"

namespace muster::test {

class SimulatedEtcd {
  public:
    struct Response {
        unsigned status = 200;
        std::string body;
    };

    /// Leases run out by the time of each call.
    Response call(const std::string& path, const std::string& body, Instant now, const std::string& token = {});
    /// From now on it has users: this one.
    void set_user(std::string name, std::string password);
    void forget_tokens() { tokens_.clear(); }
    /// Its own leader was elected anew: all leases are prolonged, as etcd does.
    void prolong_leases(Instant now);
    /// Its NOSPACE alarm: no leases and no transactions that write.
    bool is_full = false;
    /// Longer answers to reads come too late.
    std::size_t answer_bytes_max = SIZE_MAX;
    void expire(Instant now);

    /// Of a key, "" where there is none.
    [[nodiscard]] std::string value(const std::string& key) const;
    [[nodiscard]] std::size_t key_count() const { return keys_.size(); }
    /// Called for each put that happens.
    std::function<void(const std::string& key, const std::string& before, const std::string& after)> on_put;

  private:
    struct Entry {
        std::string value;
        std::int64_t created = 0;
        std::int64_t modified = 0;
        std::int64_t lease = 0;
    };
    struct Lease {
        std::int64_t ttl_s = 0;
        Instant ends;
    };

    Response authenticate(const nlohmann::json& body);
    Response transact(const nlohmann::json& body, Instant now);
    [[nodiscard]] bool holds(const nlohmann::json& compare) const;
    void erase(const std::string& key, const std::string& end);
    [[nodiscard]] nlohmann::json read(const nlohmann::json& range) const;
    [[nodiscard]] nlohmann::json header() const;

    std::map<std::string, Entry> keys_;
    std::map<std::int64_t, Lease> leases_;
    std::map<std::string, std::string> users_;
    std::set<std::string> tokens_;
    int token_count_ = 0;
    std::int64_t revision_ = 1;
    std::int64_t next_lease_ = 7'000'000'000'000'001;
};

}  // namespace muster::test
