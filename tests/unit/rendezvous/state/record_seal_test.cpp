#include "rendezvous/state/etcd/record_seal.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

using Keys = std::vector<std::string>;
const std::string old_key(32, 'o');
const std::string new_key(32, 'n');
const std::string record_name = "muster/v9/state/job/x";

std::string complaint(const Keys& keys, std::string_view stored) {
    const auto value = unseal(keys, record_name, stored);
    REQUIRE_FALSE(value.has_value());
    CHECK(value.error().code == Errc::permission_denied);
    return value.error().context;
}

}  // namespace

TEST_CASE("a record that was written with a secret is read with the same one, also while it is being replaced") {
    const std::string value("\x08\0 a record", 11);
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
    CHECK_FALSE(unseal({new_key}, "muster/v9/state/job/y", stored).has_value());
    CHECK_FALSE(unseal({new_key}, record_name + "a", seal({new_key}, record_name, " record")).has_value());
}

TEST_CASE("where a record is refused, the state is not complete") {
    const std::string prefix = "muster/v9/state/";
    const auto sealed = [&](const Keys& keys, const Record& record) {
        return Record{record.key, seal(keys, prefix + record.key, record.value)};
    };
    std::vector<Record> records{sealed({old_key}, complete_record()), sealed({old_key}, {"job/x", "a record"})};
    const auto whole = unseal_all({new_key, old_key}, prefix, records);
    CHECK(whole.refused.empty());
    CHECK(whole.good.front().key == complete_record().key);
    CHECK(whole.resealed.size() == 2);

    records.push_back({"member/x/0", "forged"});
    const auto part = unseal_all({new_key, old_key}, prefix, records);
    REQUIRE(part.good.size() == 1);
    CHECK(part.good.front().key == "job/x");
    CHECK(part.resealed.size() == 1);
    REQUIRE(part.refused.size() == 2);
    CHECK(part.refused[0].key == "member/x/0");
    CHECK(part.refused[1].key == complete_record().key);
    CHECK(part.refused[1].value == records.front().value);  // as it is in etcd
}
