#include "worker_runtime/data/sampler_state.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

const std::string good =
    R"({"version":1,"samples":100,"seed":18446744073709551615,"order":"computed","epoch":3,"cursor":96,"batch_size":8})";

std::string sentence(const std::string& text) {
    const auto state = decode_state(text);
    if (state) return "no error";
    CHECK(state.error().code == Errc::bad_frame);
    return state.error().context;
}

/// `good` with one piece of text in place of another.
std::string changed(const std::string& from, const std::string& to) {
    auto text = good;
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

ElasticSampler sampler_of(std::uint64_t samples, std::uint64_t seed, SampleOrder order) {
    return std::move(*ElasticSampler::make({.sample_count = samples, .batch_size = 8, .seed = seed, .order = order}));
}

}  // namespace

TEST_CASE("a state comes back as it was written") {
    const auto state = decode_state(good);
    REQUIRE(state.has_value());
    CHECK(encode_state(*state) == good);
    CHECK(state->seed == ~std::uint64_t{0});
    CHECK(state->order == SampleOrder::computed);
    CHECK(state->cursor == 96);
}

TEST_CASE("a field that is wrong is named") {
    CHECK(sentence("") == "the sampler's state: not a JSON object");
    CHECK(sentence("[1]") == "the sampler's state: not a JSON object");
    CHECK(sentence(changed("\"cursor\":96,", "")) == "the sampler's state: field 'cursor' is missing");
    CHECK(sentence(changed("96", "-1")) == "the sampler's state: field 'cursor' is -1, not a whole number from 0");
    CHECK(sentence(changed("96", "\"96\"")) ==
          "the sampler's state: field 'cursor' is \"96\", not a whole number from 0");
    CHECK(sentence(changed("96", "9.5")) == "the sampler's state: field 'cursor' is 9.5, not a whole number from 0");
    CHECK(sentence(changed("96", "100")) == "the sampler's state: field 'cursor' is 100; it must be 0 to 99");
    CHECK(sentence(changed(":8}", ":0}")) ==
          "the sampler's state: field 'batch_size' is 0; it must be 1 to 4294967296");
    CHECK(sentence(changed(":100", ":0")) ==
          "the sampler's state: field 'samples' is 0; it must be 1 to 9223372036854775808");
    CHECK(sentence(changed("computed", "random")) ==
          "the sampler's state: field 'order' is \"random\"; known: torch, computed, sequential");
    CHECK(sentence(changed("\"epoch\"", "\"step\"")) == "the sampler's state: field 'step' is unknown");
    CHECK(sentence(changed("\"version\":1", "\"version\":2")) ==
          "the sampler's state: field 'version' is 2; this program supports version 1");
    CHECK_THAT(sentence(changed("18446744073709551615", "18446744073709551616")), Catch::Contains("field 'seed' is"));
    CHECK_THAT(sentence(changed(":3", ":9223372036854775807")), Catch::Contains("field 'epoch' is"));
    CHECK(sentence(std::string(2'000, '[')) == "the sampler's state: 2000 bytes; at most 1024");
    CHECK(sentence(std::string(1'000, '[')) == "the sampler's state: not a JSON object");
}

TEST_CASE("no damage is worse than an error, and none leaves a cursor outside the data") {
    for (std::size_t size = 0; size < good.size(); ++size) CHECK(decode_state(good.substr(0, size)).has_error());
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (int flip = 1; flip < 256; ++flip) {
            auto text = good;
            text[at] = static_cast<char>(text[at] ^ flip);
            const auto state = decode_state(text);
            if (state && (state->cursor >= state->samples || state->batch_size == 0)) FAIL(text);
        }
    }
}

TEST_CASE("a state of other data, another seed or another order is refused, and changes nothing") {
    const auto torch = SampleOrder::torch;
    auto sampler = sampler_of(100, 5, torch);
    REQUIRE(sampler.commit(sampler.next()).has_value());
    const auto before = sampler.state();
    const auto refused = [&sampler](const ElasticSampler& other) {
        const auto loaded = sampler.load_state(other.state());
        REQUIRE(loaded.has_error());
        CHECK(loaded.error().code == Errc::refused);
        return loaded.error().context;
    };
    CHECK(refused(sampler_of(90, 5, torch)) ==
          "the sampler's state is of data with 90 samples, but this sampler has 100");
    CHECK(refused(sampler_of(100, 6, torch)) == "the sampler's state is of seed 6, but this sampler has seed 5");
    CHECK(refused(sampler_of(100, 5, SampleOrder::sequential)) ==
          "the sampler's state is of order 'sequential', but this sampler has 'torch'");
    CHECK(sampler.load_state("{").has_error());
    CHECK(sampler.state() == before);
    REQUIRE(sampler_of(100, 5, torch).load_state(before).has_value());
}
