#include "rendezvous/secret/control_key.h"

#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t name_digits = 16;

}  // namespace

ControlKey control_key(const JobKey& key, std::string_view job) {
    const auto name = hexadecimal(derived_key(key, "control tls identity")).substr(0, name_digits);
    return {.identity = cat(name, job), .key = derived_key(key, "control tls")};
}

ControlKey logs_key(const JobKey& key) {
    const auto name = hexadecimal(derived_key(key, "logs identity")).substr(0, name_digits);
    return {.identity = cat(logs_label, name), .key = derived_key(key, logs_label)};
}

ControlKey status_key(const JobKey& key) {
    return {.identity = hexadecimal(derived_key(key, "status tls identity")).substr(0, name_digits),
            .key = derived_key(key, "status tls")};
}

std::string_view job_of_identity(std::string_view identity) {
    return identity.size() > name_digits ? identity.substr(name_digits) : std::string_view();
}

std::string find_control_key(const JobKeys& accepted, std::string_view identity) {
    const auto job = job_of_identity(identity);
    if (job.empty()) return {};
    for (const auto& key : accepted(job))
        if (auto own = control_key(key, job); own.identity == identity) return own.key;
    return {};
}

std::string find_status_key(const JobKeys& accepted, std::string_view identity) {
    if (identity.size() != name_digits) return {};
    for (const auto& key : accepted({}))
        if (auto own = status_key(key); own.identity == identity) return own.key;
    return {};
}

}  // namespace muster::rendezvous
