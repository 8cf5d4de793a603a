#include "rendezvous/state/etcd/etcd_protocol.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

using Json = nlohmann::json;

std::string text(std::int64_t number) {
    return std::to_string(number);
}

Json range(const std::string& key, const std::string& end) {
    Json out{{"key", to_base64(key)}};
    if (!end.empty()) out["range_end"] = to_base64(end);
    return out;
}

Json as_json(const Compare& compare) {
    const bool created = compare.target == Compare::Target::created;
    return {{"key", to_base64(compare.key)},
            {"target", created ? "CREATE" : "MOD"},
            {"result", "EQUAL"},
            {created ? "create_revision" : "mod_revision", text(compare.revision)}};
}

Json as_json(const std::variant<Put, Erase>& operation) {
    if (const auto* erase = std::get_if<Erase>(&operation))
        return {{"request_delete_range", range(erase->key, erase->end)}};
    const auto& put = std::get<Put>(operation);
    Json out{{"key", to_base64(put.key)}, {"value", to_base64(put.value)}};
    if (put.lease != 0) out["lease"] = text(put.lease);
    return {{"request_put", out}};
}

struct Encode {
    EtcdCall operator()(const GrantLease& m) const { return {"/v3/lease/grant", Json{{"TTL", text(m.ttl_s)}}.dump()}; }
    EtcdCall operator()(const KeepLease& m) const {
        return {"/v3/lease/keepalive", Json{{"ID", text(m.lease)}}.dump()};
    }
    EtcdCall operator()(const RevokeLease& m) const { return {"/v3/lease/revoke", Json{{"ID", text(m.lease)}}.dump()}; }
    EtcdCall operator()(const ReadKeys& m) const {
        Json out = range(m.key, m.end);
        if (m.limit != 0) out["limit"] = text(m.limit);
        if (m.revision != 0) out["revision"] = text(m.revision);
        return {"/v3/kv/range", out.dump()};
    }
    EtcdCall operator()(const Transaction& m) const {
        Json out{{"compare", Json::array()}, {"success", Json::array()}, {"failure", Json::array()}};
        for (const auto& compare : m.compare) out["compare"].push_back(as_json(compare));
        for (const auto& operation : m.then) out["success"].push_back(as_json(operation));
        for (const auto& key : m.otherwise) out["failure"].push_back({{"request_range", range(key, {})}});
        return {"/v3/kv/txn", out.dump()};
    }
    EtcdCall operator()(const Authenticate& m) const {
        return {"/v3/auth/authenticate", Json{{"name", m.user}, {"password", m.password}}.dump()};
    }
};

// ---- answers. The gateway omits fields that are zero, false or empty. ----

/// Reads fields; ok() becomes false when one has the wrong type.
class Reader {
  public:
    [[nodiscard]] bool ok() const { return ok_; }
    void fail() { ok_ = false; }

    std::int64_t number(const Json& object, const char* name) {
        const Json* field = find(object, name);
        if (field == nullptr) return 0;
        if (field->is_number_integer()) return field->get<std::int64_t>();
        std::int64_t value = 0;
        if (!field->is_string() || !parse_number(field->get_ref<const std::string&>(), value)) ok_ = false;
        return value;
    }
    bool flag(const Json& object, const char* name) {
        const Json* field = find(object, name);
        if (field == nullptr) return false;
        if (!field->is_boolean()) ok_ = false;
        return ok_ && field->get<bool>();
    }
    std::string words(const Json& object, const char* name) {
        const Json* field = find(object, name);
        if (field == nullptr || !field->is_string()) ok_ = false;
        return ok_ ? field->get<std::string>() : std::string{};
    }
    std::string bytes(const Json& object, const char* name) {
        const Json* field = find(object, name);
        if (field == nullptr) return {};
        auto value = field->is_string() ? from_base64(field->get_ref<const std::string&>()) : std::nullopt;
        if (!value) ok_ = false;
        return value ? *std::move(value) : std::string{};
    }
    /// Empty when the field is missing.
    const Json& part(const Json& object, const char* name) {
        static const Json empty = Json::object();
        const Json* field = find(object, name);
        if (field != nullptr && !field->is_object()) ok_ = false;
        return field != nullptr && field->is_object() ? *field : empty;
    }
    const Json& list(const Json& object, const char* name) {
        static const Json empty = Json::array();
        const Json* field = find(object, name);
        if (field != nullptr && !field->is_array()) ok_ = false;
        return field != nullptr && field->is_array() ? *field : empty;
    }
    std::int64_t revision(const Json& object) { return number(part(object, "header"), "revision"); }
    std::vector<EtcdKeyValue> keys(const Json& object) {
        std::vector<EtcdKeyValue> all;
        for (const auto& one : list(object, "kvs"))
            all.push_back(
                {bytes(one, "key"), bytes(one, "value"), number(one, "create_revision"), number(one, "mod_revision")});
        return all;
    }

  private:
    const Json* find(const Json& object, const char* name) {
        if (!object.is_object()) {
            ok_ = false;
            return nullptr;
        }
        const auto found = object.find(name);
        return found == object.end() || found->is_null() ? nullptr : &*found;
    }

    bool ok_ = true;
};

struct Decode {
    Reader& in;
    const Json& body;

    EtcdAnswer operator()(const GrantLease&) const {
        const LeaseReply told{in.number(body, "ID"), in.number(body, "TTL")};
        if (told.lease == 0 || told.ttl_s <= 0) in.fail();
        return told;
    }
    EtcdAnswer operator()(const KeepLease& asked) const {
        const auto& result = in.part(body, "result");
        const LeaseReply told{in.number(result, "ID"), in.number(result, "TTL")};
        if (told.lease != asked.lease || told.ttl_s < 0) in.fail();
        return told;
    }
    EtcdAnswer operator()(const RevokeLease&) const { return Done{}; }
    EtcdAnswer operator()(const ReadKeys&) const {
        KeysReply told{in.revision(body), in.keys(body), in.flag(body, "more")};
        if (told.revision <= 0) in.fail();
        return told;
    }
    EtcdAnswer operator()(const Transaction& asked) const {
        TransactionReply told{in.revision(body), in.flag(body, "succeeded"), {}};
        if (told.revision <= 0) in.fail();
        if (told.succeeded) return told;
        for (const auto& response : in.list(body, "responses")) {
            auto keys = in.keys(in.part(response, "response_range"));
            told.read.push_back(keys.empty() ? std::nullopt : std::optional(std::move(keys.front())));
        }
        if (told.read.size() != asked.otherwise.size()) in.fail();
        return told;
    }
    EtcdAnswer operator()(const Authenticate&) const {
        TokenReply told{in.words(body, "token")};
        // The token goes into an HTTP header.
        if (told.token.empty() || std::ranges::any_of(told.token, [](char c) { return c <= ' ' || c > '~'; }))
            in.fail();
        return told;
    }
};

/// etcd's texts for errors that have no gRPC code of their own.
bool is_about_login(std::string_view said) {
    constexpr std::array<std::string_view, 3> all{"invalid auth token", "user name is empty",
                                                  "revision of auth store is old"};
    return std::ranges::any_of(all, [&](auto one) { return said.find(one) != std::string_view::npos; });
}

Error refusal(unsigned status, const Json& json, const std::string& body) {
    const auto said = json.is_object() ? json.find("error") : json.end();
    // An answer without JSON is not etcd's: it is Go's HTTP server (http sent to https), or another program.
    const auto words = said != json.end() && said->is_string()
                           ? said->get<std::string>()
                           : body.substr(0, std::min<std::size_t>(body.find('\n'), 200));
    // NOSPACE: status 429 or 503, by the version of etcd.
    if (words.find("database space exceeded") != words.npos)
        return {Errc::limit_exceeded, cat("etcd's database is full (", words,
                                          "); compact and defragment it or raise --quota-backend-bytes, then run "
                                          "etcdctl alarm disarm")};
    const auto code = is_about_login(words)                                       ? Errc::permission_denied
                      : words.find("authentication is not enabled") != words.npos ? Errc::unsupported
                      // etcd has no leader, lost it, or is overloaded: a retry may succeed.
                      : status >= 500 || status == 429 ? Errc::unreachable
                                                       : Errc::refused;
    return {code, cat("etcd answered with HTTP status ", status, words.empty() ? "" : ": ", words)};
}

}  // namespace

EtcdCall encode(const EtcdRequest& request) {
    return std::visit(Encode{}, request);
}

Result<EtcdAnswer> decode_answer(const EtcdRequest& request, unsigned status, const std::string& body) {
    const auto json = Json::parse(body, nullptr, false);
    if (status != 200) return refusal(status, json, body);
    if (!json.is_object()) return Error{Errc::bad_frame, "etcd's answer is not a JSON object"};
    Reader reader;
    auto answer = std::visit(Decode{reader, json}, request);
    if (!reader.ok()) return Error{Errc::bad_frame, "etcd's answer does not match the request"};
    return answer;
}

std::string range_end(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
    if (!prefix.empty()) prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
    return prefix;
}

}  // namespace muster::rendezvous
