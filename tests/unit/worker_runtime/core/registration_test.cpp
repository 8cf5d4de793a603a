#include "worker_runtime/core/registration.h"

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/random_model.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::RandomModel;

namespace {

Parameter named(std::string name, std::vector<std::int64_t> shape = {4}, DataType type = DataType::f32) {
    return {.name = std::move(name), .shape = std::move(shape), .type = type};
}

Registration model(std::vector<Parameter> parameters) {
    return {.parameters = std::move(parameters), .settings = {{"bucket cap", "25 MiB"}}};
}

std::string refusal(const std::vector<Parameter>& parameters) {
    const auto checked = check_parameters(parameters);
    return checked ? "" : checked.error().context;
}

}  // namespace

TEST_CASE("parameters that cannot be reduced are refused by name") {
    CHECK(refusal({named("a"), named("b", {}), named("c", {0, 3})}).empty());
    CHECK(refusal({}) == "no parameters were given");
    CHECK(refusal({named("a"), named("a")}) == "parameter \"a\": its name occurs twice");
    CHECK(refusal({named("")}) == "parameter \"\": a parameter needs a name");
    CHECK(refusal({named("w", {2, -1})}) == "parameter \"w\": its shape has a dimension of -1");
    CHECK(refusal({named("w", {1, 2}, DataType::i32)}) ==
          "parameter \"w\": gradients are averaged, and i32 has no averages");
    CHECK(refusal({named("w", {std::int64_t{1} << 40, std::int64_t{1} << 40})}) ==
          "parameter \"w\": its shape has too many elements");
    CHECK(refusal({named("v", {std::int64_t{1} << 60}), named("w", {std::int64_t{1} << 60})}) ==
          "parameter \"w\": all parameters together are too large");
    CHECK(refusal({named(std::string(5000, 'n'))}).find("longer than 4096 bytes") != std::string::npos);
    CHECK(refusal({named("w", std::vector<std::int64_t>(65, 1))}) == "parameter \"w\": more than 64 dimensions");
}

TEST_CASE("the first difference names the parameter and both ranks") {
    const auto base = model({named("a"), named("b", {64, 32}), named("c")});
    const auto difference = [&](const Registration& other) { return first_difference(base, 0, other, 3); };
    CHECK(difference(base).empty());
    CHECK(difference(model({named("a"), named("b", {64, 31}), named("c")})) ==
          "parameter \"b\" is f32 [64, 32] on rank 0 but f32 [64, 31] on rank 3: build the same model on all ranks");
    CHECK(difference(model({named("a"), named("b", {64, 32}, DataType::bf16), named("c")})) ==
          "parameter \"b\" is f32 [64, 32] on rank 0 but bf16 [64, 32] on rank 3: build the same model on all ranks");
    CHECK(difference(model({named("a"), named("c"), named("b", {64, 32})})) ==
          "\"b\" is parameter 1 of rank 0 but parameter 2 of rank 3 (parameter 1 there is \"c\"): register the "
          "parameters in the same order on all ranks");
    CHECK(difference(model({named("a"), named("c")})) ==
          "\"b\" is parameter 1 of rank 0, and rank 3 has none of that name (parameter 1 there is \"c\"): build the "
          "same model on all ranks");
    CHECK(difference(model({named("a"), named("new"), named("b", {64, 32}), named("c")})) ==
          "\"new\" is parameter 1 of rank 3, and rank 0 has none of that name (parameter 1 there is \"b\"): build the "
          "same model on all ranks");
    CHECK(difference(model({named("a"), named("b", {64, 32})})) ==
          "\"c\" is parameter 2 of rank 0, and rank 3 has none of that name (it registered 2 of 3): build the same "
          "model on all ranks");
    auto settings = base;
    settings.settings[0].second = "1 MiB";
    CHECK(difference(settings) ==
          "the setting \"bucket cap\" is 25 MiB on rank 0 but 1 MiB on rank 3: give all ranks the same");
}

TEST_CASE("a registration travels whole, and a damaged one is refused or different, never equal") {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        INFO("seed " << seed);
        RandomModel random(seed);
        const auto registration = model(random.parameters(12));
        const auto bytes = encode(registration);
        const auto read = decode_registration(bytes);
        REQUIRE(read.has_value());
        REQUIRE(first_difference(registration, 0, *read, 1).empty());
        REQUIRE(encode(*read) == bytes);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            REQUIRE_FALSE(decode_registration(std::string_view(bytes).substr(0, size)).has_value());
        }
        REQUIRE_FALSE(decode_registration(bytes + "x").has_value());
        auto damaged = bytes;
        auto& byte = damaged[random.number(0, bytes.size() - 1)];
        byte = static_cast<char>(byte ^ (1 << random.number(0, 7)));
        REQUIRE(hash_bytes(damaged) != hash_bytes(bytes));
        const auto other = decode_registration(damaged);
        if (other) REQUIRE_FALSE(first_difference(registration, 0, *other, 1).empty());
    }
}
