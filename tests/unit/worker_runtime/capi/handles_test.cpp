#include "worker_runtime/capi/handles.h"

#include <memory>
#include <string>

#include "tests/support/catch.h"

namespace muster::capi {

namespace {

struct Opaque;
using Numbers = Handles<Opaque, int>;

}  // namespace

TEST_CASE("a call that has an object to itself is found by no other call, and waits for none that uses it") {
    Numbers all("number");
    auto* const handle = all.add(std::make_shared<int>(7));
    {
        const auto used = all.find(handle);
        REQUIRE(used.has_value());
        CHECK(all.reserve(handle).value().get() == nullptr);
    }
    CHECK(**all.find(handle) == 7);
    CHECK(*all.reserve(handle).value() == 7);
    CHECK(all.find(handle).error().context.find("has this number to itself") != std::string::npos);
    CHECK(all.reserve(handle).error().code == Errc::invalid_argument);
    all.unreserve(handle);
    CHECK(**all.find(handle) == 7);
}

TEST_CASE("an object that a call has to itself may be released meanwhile, and goes after that call") {
    Numbers all("number");
    auto* const handle = all.add(std::make_shared<int>(7));
    auto kept = all.reserve(handle).value();
    CHECK(all.release(handle).has_value());
    all.unreserve(handle);
    CHECK(all.find(handle).error().context == "not a valid number, or already released");
    CHECK(kept.use_count() == 1);
    CHECK(all.reserve(nullptr).error().context == "the number is NULL");
}

}  // namespace muster::capi
