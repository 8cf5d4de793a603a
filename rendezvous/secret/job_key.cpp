#include "rendezvous/secret/job_key.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_secret.h"

namespace muster::rendezvous {

namespace {

constexpr std::string_view text_begin = "muster-job-key:";
constexpr std::size_t key_bytes = 32;

/// 0 to 15, or -1.
int digit_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/// `digits` are as wrong_with_job_key accepts them.
JobKey key_of(std::string_view digits) {
    JobKey key;
    key.reserve(key_bytes);
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        key += static_cast<char>(digit_value(digits[i]) * 16 + digit_value(digits[i + 1]));
    return key;
}

}  // namespace

JobKey job_key(const Secret& secret, std::string_view job) {
    const std::string_view text = secret.text;
    if (text.empty()) return {};
    if (is_job_key(text)) return key_of(text.substr(text_begin.size()));
    auto extracted = hmac_sha256("muster job", text);
    auto key = derived_key(extracted, job);
    ::explicit_bzero(extracted.data(), extracted.size());
    return key;
}

std::string job_key_text(const JobKey& key) {
    return cat(text_begin, hexadecimal(key));
}

bool is_job_key(std::string_view text) {
    return text.starts_with(text_begin);
}

std::string wrong_with_job_key(std::string_view text) {
    if (!is_job_key(text)) return {};
    text.remove_prefix(text_begin.size());
    const bool is_hexadecimal = std::ranges::all_of(text, [](char c) { return digit_value(c) >= 0; });
    if (is_hexadecimal && text.size() == 2 * key_bytes) return {};
    return cat("is an incomplete job key: after ", text_begin, " stand ", text.size(),
               is_hexadecimal ? " digits" : " characters",
               ", and there must be 64 hexadecimal digits; copy the whole "
               "line that muster key --job printed");
}

std::string derived_key(const JobKey& key, std::string_view label) {
    return key.empty() ? std::string() : hmac_sha256(key, cat(label, '\x01'));
}

JobKeys job_keys(Secret secret) {
    if (secret.text.empty()) return {};
    return job_keys(std::make_shared<const std::vector<Secret>>(1, std::move(secret)));
}

JobKeys job_keys(std::shared_ptr<const std::vector<Secret>> accepted) {
    return [accepted = std::move(accepted)](std::string_view job) {
        std::vector<JobKey> keys;
        for (const auto& secret : *accepted) keys.push_back(job_key(secret, job));
        return keys;
    };
}

Result<std::vector<JobKey>> find_job_keys(const ValueOf& value_of, std::string_view job) {
    const auto in_use = MUSTER_TRY(find_secret(value_of));
    auto secrets = accepted_with(in_use, value_of);
    if (!secrets) {
        static std::atomic<bool> told = false;  // a program may ask for the keys of several jobs
        if (!told.exchange(true)) log(LogLevel::warning, secrets.error().context, "; only the secret in use is tried");
        secrets = std::vector<Secret>{in_use};
    }
    std::vector<JobKey> keys;
    for (const auto& secret : *secrets) keys.push_back(job_key(secret, job));
    return keys;
}

std::function<std::vector<std::string>()> record_keys(JobKeys keys, std::string job) {
    if (!keys) return {};
    return [keys = std::move(keys), job = std::move(job)] {
        auto all = keys(job);
        for (auto& key : all) key = derived_key(key, "state");
        return all;
    };
}

native::KeyedHash control_hash(const JobKey& key) {
    return key.empty() ? native::KeyedHash{} : keyed_hash(derived_key(key, "control"));
}

native::HashesOf control_hashes(JobKeys keys) {
    if (!keys) return {};
    return [keys = std::move(keys)](std::string_view job) {
        std::vector<native::KeyedHash> hashes;
        for (const auto& key : keys(job)) hashes.push_back(control_hash(key));
        return hashes;
    };
}

std::string status_token(const JobKey& key) {
    return hexadecimal(derived_key(key, "status"));
}

std::string metrics_token(const JobKey& key) {
    return hexadecimal(derived_key(key, "metrics"));
}

}  // namespace muster::rendezvous
