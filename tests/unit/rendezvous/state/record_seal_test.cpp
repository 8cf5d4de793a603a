#include "rendezvous/state/etcd/record_seal.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

using Keys = std::vector<std::string>;
const std::string old_key(32, 'o');
const std::string new_key(32, 'n');
const std::string record_name = "muster/v7/state/job/x";

std::string complaint(const Keys& keys, std::string_view stored) {
    const auto value = unseal(keys, record_name, stored);
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::permission_denied);
    return value.error().context;
}

}  // namespace

TEST_CASE("a record that was written with a secret is read with the same one, also while it is being replaced") {
    const std::string value("\x07\0 a record", 11);
    const auto stored = seal({old_key}, record_name, value);
    CHECK(stored != value);
    CHECK(*unseal({old_key}, record_name, stored) == value);
    CHECK(*unseal({new_key, old_key}, record_name, stored) == value);
    CHECK(*unseal({old_key, new_key}, record_name, seal({new_key, old_key}, record_name, value)) == value);
    CHECK(complaint({new_key}, stored).starts_with("they were not written with this daemon's secret"));
}

TEST_CASE("a daemon without a secret keeps its records as they are, and does not read those of one that has one") {
    CHECK(seal({}, record_name, "a record") == "a record");
    CHECK(*unseal({}, record_name, "a record") == "a record");
    CHECK(complaint({}, seal({new_key}, record_name, "a record")).find("this one has none") != std::string::npos);
}

TEST_CASE("a record that somebody without the secret wrote, changed or moved to another job is refused") {
    const auto stored = seal({new_key}, record_name, "a record");
    CHECK(complaint({new_key}, "a record").starts_with("they were not written with a secret"));
    CHECK(complaint({new_key}, "").starts_with("they were not written with a secret"));
    for (std::size_t at = 0; at < stored.size(); ++at) {
        auto changed = stored;
        changed[at] ^= 1;
        complaint({new_key}, changed);
        complaint({new_key}, stored.substr(0, at));
    }
    CHECK_FALSE(unseal({new_key}, "muster/v7/state/job/y", stored).has_value());
    CHECK_FALSE(unseal({new_key}, record_name + "a", seal({new_key}, record_name, " record")).has_value());
}
