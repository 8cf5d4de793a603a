// Chunking and damage: the result never depends on how bytes were cut, and damaged bytes never do harm.
#include <map>

#include "store_fixture.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using namespace muster::rendezvous::test;

namespace {

std::string script(const Words& words) {
    const bool is_newer = words.family == c10d::Family::newer;
    std::string out = is_newer ? handshake : std::string{};
    out += words.add("init/", 1) + words.set("/k", "value") + words.get("/k") + words.compare_set("/k", "value", "w");
    out += words.check({"/k", "/missing"}) + words.wait({"/k"}) + words.set("/large", std::string(20'000, 'L'));
    out += words.get("/large") + words.bare(Operation::num_keys) + words.key(Operation::delete_key, "/k");
    if (!is_newer) return out + words.key(Operation::watch_key, "/k") + words.wait({"/never"});
    out +=
        words.put(Operation::append, "/k", std::string(17'000, 'a')) + words.keys(Operation::multi_get, {"/k", "/x"});
    out += words.multi_set({"/m1", "/m2"}, {"1", "2"}) + words.put(Operation::queue_push, "/q", "first");
    out += words.key(Operation::queue_pop, "/q") + words.key(Operation::queue_len, "/q") + words.arrive("/b", 1);
    out += words.wait_get({"/m1", "/m2"}) + words.bare(Operation::list_keys) + words.wait({"/never"});
    return out + words.bare(Operation::cancel_wait) + words.compare_set("/l2", "", std::string(16'500, 'c'));
}

// The later ones are received in the memory of those before.
std::string large_values(const Words& words) {
    std::string out;
    for (const std::size_t size : {200'000u, 150'000u, 190'000u, 120'000u})
        out += words.set("/large", std::string(size, static_cast<char>(size / 1'000))) + words.get("/large");
    return out;
}

struct Outcome {
    std::string output;
    std::optional<std::string> closed;
    std::size_t bytes;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome play(std::string_view bytes, std::size_t chunk, void (StoreFixture::*give)(TestPeer&, std::string_view)) {
    StoreFixture store;
    auto& peer = store.open();
    for (std::size_t at = 0; at < bytes.size() && !peer.closed; at += chunk)
        (store.*give)(peer, bytes.substr(at, chunk));
    return {peer.output, peer.closed, store.server.usage().bytes};
}

// A store that lives on while damaged scripts come and go on it.
void survive(StoreFixture& store, std::string_view bytes) {
    auto& peer = store.open();
    store.tell(peer, bytes);
    store.end(peer);
    CHECK(store.server.usage().wait_count == 0);
}

}  // namespace

TEST_CASE("Every chunking of a script gives the same replies and the same store") {
    for (const Words* words : {&newer, &older}) {
        const auto bytes = script(*words);
        const auto whole = play(bytes, bytes.size(), &StoreFixture::tell);
        REQUIRE_FALSE(whole.closed);
        for (const std::size_t chunk : {1u, 2u, 3u, 5u, 7u, 8u, 9u, 13u, 64u, 1'000u, 4'096u, 20'000u}) {
            INFO("chunks of " << chunk);
            CHECK(play(bytes, chunk, &StoreFixture::tell) == whole);
        }
        for (std::size_t cut = 1; cut < bytes.size(); cut += cut < 600 ? 1 : 97) {
            StoreFixture store;
            auto& peer = store.open();
            store.tell(peer, std::string_view(bytes).substr(0, cut));
            store.tell(peer, std::string_view(bytes).substr(cut));
            INFO("cut at " << cut);
            CHECK(peer.output == whole.output);
        }
    }
}

TEST_CASE("Large values are the same in pieces of any size, copied to their place or read there") {
    for (const Words* words : {&newer, &older}) {
        const auto bytes = script(*words) + large_values(*words);
        const auto whole = play(bytes, bytes.size(), &StoreFixture::tell);
        for (const std::size_t chunk : {1'000u, 4'096u, 20'000u, 70'000u, 300'000u}) {
            INFO("chunks of " << chunk);
            CHECK(play(bytes, chunk, &StoreFixture::tell) == whole);
            CHECK(play(bytes, chunk, &StoreFixture::pour) == whole);
        }
    }
}

TEST_CASE("Nothing of a request takes effect before its last byte") {
    StoreFixture store;
    auto& peer = store.open_newer();
    auto& other = store.open_newer();
    const auto request = newer.multi_set({"/a", "/b"}, {"1", "2"});
    store.tell(peer, std::string_view(request).substr(0, request.size() - 1));
    CHECK(store.ask(other, newer.bare(Operation::num_keys)) == i64(0));
    store.tell(peer, std::string_view(request).substr(request.size() - 1));
    CHECK(store.ask(other, newer.bare(Operation::num_keys)) == i64(2));
}

TEST_CASE("A damaged script harms nobody: truncations, flipped bytes, lengths off by one") {
    for (const Words* words : {&newer, &older}) {
        const auto bytes = script(*words);
        const std::size_t interesting = std::min<std::size_t>(bytes.size(), 700);
        StoreFixture store({.bytes_max = 4'000'000});
        for (std::size_t size = 0; size < interesting; ++size) survive(store, std::string_view(bytes).substr(0, size));
        for (std::size_t at = 0; at < bytes.size(); at += at < interesting ? 1 : 211) {
            for (const int damage : {0x01, 0x80, 0xff}) {
                auto damaged = bytes;
                damaged[at] = static_cast<char>(damaged[at] ^ damage);
                survive(store, damaged);
            }
            for (const int step : {-1, 1}) {
                auto damaged = bytes;
                damaged[at] = static_cast<char>(damaged[at] + step);
                survive(store, damaged);
            }
        }
        CHECK(store.server.usage().bytes < 4'000'000);
        auto& fine = store.open_newer();
        CHECK(store.ask(fine, newer.set("/fine", "1") + newer.get("/fine")) == blob("1"));
    }
}

TEST_CASE("The map agrees with a plain model over a long random history") {
    StoreFixture store({.hash_seed = 7});
    auto& peer = store.open_newer();
    std::map<std::string, std::string> model;
    std::uint64_t state = 42;
    const auto next = [&](std::uint64_t below) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % below;
    };
    for (int i = 0; i < 20'000; ++i) {
        const auto key = "/key/" + std::to_string(next(700));
        const auto value = std::string(next(40), static_cast<char>('a' + next(26)));
        switch (next(4)) {
            case 0: store.tell(peer, newer.set(key, value)), model[key] = value; break;
            case 1: store.tell(peer, newer.put(Operation::append, key, value)), model[key] += value; break;
            case 2:
                CHECK(store.ask(peer, newer.key(Operation::delete_key, key)) ==
                      i64(static_cast<int>(model.erase(key))));
                break;
            default: {
                const auto found = model.find(key);
                CHECK(store.ask(peer, newer.get(key)) == blob(found == model.end() ? "" : found->second));
            }
        }
    }
    CHECK(store.ask(peer, newer.bare(Operation::num_keys)) == i64(static_cast<std::int64_t>(model.size())));
    for (const auto& [key, value] : model) store.tell(peer, newer.key(Operation::delete_key, key));
    CHECK(store.server.usage().bytes == 0);
}
