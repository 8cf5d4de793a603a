#include "rendezvous/state/etcd/record_seal.h"

#include <algorithm>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// No record begins with it: theirs is a kind (job_record.h).
constexpr std::string_view mark = "hmac-sha256:";
constexpr std::size_t digest_bytes = 32;

std::string digest_of(const std::string& key, std::string_view name, std::string_view value) {
    std::string text;
    ByteWriter(text).blob<std::uint32_t>(name);
    text += value;
    return hmac_sha256(key, text);
}

}  // namespace

std::string seal(const std::vector<std::string>& keys, std::string_view name, std::string_view value) {
    return keys.empty() ? std::string(value) : cat(mark, digest_of(keys.front(), name, value), value);
}

Result<std::string> unseal(const std::vector<std::string>& keys, std::string_view name, std::string_view stored) {
    const auto wrong = [](const char* why) { return Error{Errc::permission_denied, why}; };
    const bool is_sealed = stored.starts_with(mark);
    if (keys.empty() && is_sealed)
        return wrong("they were written by a daemon with a secret, and this one has none; give it the same secret");
    if (keys.empty()) return std::string(stored);
    if (!is_sealed)
        return wrong(
            "they were not written with a secret, and this daemon has one. A daemon without a secret wrote them, or "
            "somebody else who can write to etcd");
    stored.remove_prefix(mark.size());
    const auto digest = stored.substr(0, digest_bytes);
    const auto value = stored.substr(std::min(digest_bytes, stored.size()));
    if (std::ranges::none_of(keys, [&](const auto& key) { return same_digest(digest_of(key, name, value), digest); }))
        return wrong(
            "they were not written with this daemon's secret. Another daemon has another secret (give all daemons "
            "the same one), or somebody else can write to etcd");
    return std::string(value);
}

Unsealed unseal_all(const std::vector<std::string>& keys, std::string_view prefix, const std::vector<Record>& records) {
    Unsealed found;
    const auto is_complete = [name = complete_record().key](const Record& record) { return record.key == name; };
    for (const auto& record : records) {
        const auto key = cat(prefix, record.key);
        auto value = unseal(keys, key, record.value);
        if (!value) {
            found.why = value.error().context;
            found.refused.push_back(record);
            continue;
        }
        if (auto anew = seal(keys, key, *value); anew != record.value)
            found.resealed.push_back({record.key, std::move(anew)});
        found.good.push_back({record.key, *std::move(value)});
    }
    if (found.refused.empty() || std::erase_if(found.good, is_complete) == 0) return found;
    std::erase_if(found.resealed, is_complete);
    found.refused.push_back(*std::ranges::find_if(records, is_complete));
    return found;
}

}  // namespace muster::rendezvous
