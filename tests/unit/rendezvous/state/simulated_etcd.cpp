#include "tests/unit/rendezvous/state/simulated_etcd.h"

#include <nlohmann/json.hpp>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/state/etcd/etcd_protocol.h"

namespace muster::test {

using Json = nlohmann::json;
using rendezvous::from_base64;
using rendezvous::to_base64;

namespace {

constexpr std::int64_t ttl_min_s = 2;  // as etcd's defaults have it
constexpr std::size_t operations_max = 128;

std::string bytes(const Json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end()) return {};
    auto value = from_base64(found->get<std::string>());
    MUSTER_CHECK(value.has_value(), name);
    return *value;
}

std::int64_t number(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? 0 : std::stoll(found->get<std::string>());
}

SimulatedEtcd::Response refused(const char* why) {
    return {400, Json{{"error", why}, {"code", 3}}.dump()};
}

}  // namespace

Json SimulatedEtcd::header() const {
    return {{"cluster_id", "1"}, {"revision", std::to_string(revision_)}};
}

void SimulatedEtcd::expire(Instant now) {
    for (auto lease = leases_.begin(); lease != leases_.end();) {
        if (lease->second.ends > now) {
            ++lease;
            continue;
        }
        for (auto key = keys_.begin(); key != keys_.end();) {
            if (key->second.lease != lease->first) {
                ++key;
                continue;
            }
            ++revision_;
            key = keys_.erase(key);
        }
        lease = leases_.erase(lease);
    }
}

void SimulatedEtcd::prolong_leases(Instant now) {
    for (auto& [id, lease] : leases_) lease.ends = now + std::chrono::seconds(lease.ttl_s);
}

std::string SimulatedEtcd::value(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? std::string{} : found->second.value;
}

void SimulatedEtcd::set_user(std::string name, std::string password) {
    users_[std::move(name)] = std::move(password);
}

SimulatedEtcd::Response SimulatedEtcd::authenticate(const Json& body) {
    if (users_.empty()) return {400, Json{{"error", "etcdserver: authentication is not enabled"}, {"code", 9}}.dump()};
    const auto user = users_.find(body.at("name").get<std::string>());
    if (user == users_.end() || user->second != body.at("password"))
        return refused("etcdserver: authentication failed, invalid user ID or password");
    const auto token = "token." + std::to_string(++token_count_);
    tokens_.insert(token);
    return {200, Json{{"header", header()}, {"token", token}}.dump()};
}

SimulatedEtcd::Response SimulatedEtcd::call(const std::string& path, const std::string& text, Instant now,
                                            const std::string& token) {
    expire(now);
    const auto body = Json::parse(text);
    if (path == "/v3/auth/authenticate") return authenticate(body);
    if (!users_.empty() && token.empty()) return refused("etcdserver: user name is empty");
    if (!users_.empty() && !tokens_.contains(token))
        return {401, Json{{"error", "etcdserver: invalid auth token"}, {"code", 16}}.dump()};
    if (is_full && (path == "/v3/lease/grant" || text.find("request_put") != text.npos))
        return {429, Json{{"error", "etcdserver: mvcc: database space exceeded"}, {"code", 8}}.dump()};
    if (path == "/v3/lease/grant") {
        const auto ttl = std::max(number(body, "TTL"), ttl_min_s);
        leases_[next_lease_] = {ttl, now + std::chrono::seconds(ttl)};
        return {200,
                Json{{"header", header()}, {"ID", std::to_string(next_lease_++)}, {"TTL", std::to_string(ttl)}}.dump()};
    }
    if (path == "/v3/lease/keepalive") {
        Json result{{"header", header()}, {"ID", body.at("ID")}};
        const auto lease = leases_.find(number(body, "ID"));
        if (lease != leases_.end()) {
            lease->second.ends = now + std::chrono::seconds(lease->second.ttl_s);
            result["TTL"] = std::to_string(lease->second.ttl_s);
        }
        return {200, Json{{"result", result}}.dump()};
    }
    if (path == "/v3/lease/revoke") {
        const auto lease = leases_.find(number(body, "ID"));
        if (lease == leases_.end()) return {404, Json{{"error", "requested lease not found"}}.dump()};
        lease->second.ends = now;
        expire(now);
        return {200, Json{{"header", header()}}.dump()};
    }
    if (path == "/v3/kv/range") {
        auto answer = read(body);
        answer["header"] = header();
        auto page = answer.dump();
        if (page.size() > answer_bytes_max) return {504, "too late"};
        return {200, std::move(page)};
    }
    if (path == "/v3/kv/txn") return transact(body, now);
    return {404, "Not Found"};
}

Json SimulatedEtcd::read(const Json& range) const {
    const auto key = bytes(range, "key");
    const auto end = bytes(range, "range_end");
    const auto limit = number(range, "limit");
    Json answer = Json::object();
    auto kvs = Json::array();
    for (auto at = keys_.lower_bound(key); at != keys_.end(); ++at) {
        if (end.empty() ? at->first != key : at->first >= end) break;
        if (limit != 0 && static_cast<std::int64_t>(kvs.size()) == limit) {
            answer["more"] = true;
            break;
        }
        Json one{{"key", to_base64(at->first)},
                 {"create_revision", std::to_string(at->second.created)},
                 {"mod_revision", std::to_string(at->second.modified)}};
        if (!at->second.value.empty()) one["value"] = to_base64(at->second.value);
        kvs.push_back(one);
    }
    if (!kvs.empty()) answer["kvs"] = kvs;
    return answer;
}

bool SimulatedEtcd::holds(const Json& compare) const {
    const auto found = keys_.find(bytes(compare, "key"));
    const bool created = compare.at("target") == "CREATE";
    const auto actual = found == keys_.end() ? 0 : created ? found->second.created : found->second.modified;
    return actual == number(compare, created ? "create_revision" : "mod_revision");
}

void SimulatedEtcd::erase(const std::string& key, const std::string& end) {
    for (auto at = keys_.lower_bound(key); at != keys_.end();) {
        if (end.empty() ? at->first != key : at->first >= end) break;
        at = keys_.erase(at);
    }
}

SimulatedEtcd::Response SimulatedEtcd::transact(const Json& body, Instant) {
    const auto& success = body.at("success");
    if (success.size() > operations_max) return refused("etcdserver: too many operations in txn request");
    std::set<std::string> named;
    for (const auto& operation : success) {
        if (!operation.contains("request_put")) continue;
        const auto& put = operation.at("request_put");
        if (!named.insert(bytes(put, "key")).second) return refused("etcdserver: duplicate key given in txn request");
    }
    bool all = true;
    for (const auto& compare : body.at("compare")) all = all && holds(compare);
    Json answer{{"header", header()}};
    auto responses = Json::array();
    if (!all) {
        for (const auto& operation : body.at("failure"))
            responses.push_back({{"response_range", read(operation.at("request_range"))}});
        answer["responses"] = responses;
        return {200, answer.dump()};
    }
    for (const auto& operation : success)
        if (operation.contains("request_put") && number(operation.at("request_put"), "lease") != 0 &&
            !leases_.contains(number(operation.at("request_put"), "lease")))
            return refused("etcdserver: requested lease not found");
    ++revision_;
    for (const auto& operation : success) {
        if (operation.contains("request_delete_range")) {
            const auto& range = operation.at("request_delete_range");
            erase(bytes(range, "key"), bytes(range, "range_end"));
            continue;
        }
        const auto& put = operation.at("request_put");
        auto& entry = keys_[bytes(put, "key")];
        const auto after = bytes(put, "value");
        if (on_put) on_put(bytes(put, "key"), entry.value, after);
        if (entry.created == 0) entry.created = revision_;
        entry = {after, entry.created, revision_, number(put, "lease")};
    }
    answer["header"] = header();
    answer["succeeded"] = true;
    return {200, answer.dump()};
}

}  // namespace muster::test
