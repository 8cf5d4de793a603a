#include "rendezvous/tls/psk_channel.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/secret/control_key.h"
#include "tests/support/catch.h"

using namespace muster::rendezvous;
using State = PskChannel::State;
using Cause = PskChannel::Failure;

namespace {

const JobKey key_a(32, 'a'), key_b(32, 'b');

std::shared_ptr<const PskContext> server_of(std::vector<JobKey> accepted) {
    return PskContext::server([accepted](std::string_view identity) {
        return find_control_key([&](std::string_view) { return accepted; }, identity);
    });
}

std::shared_ptr<const PskContext> client_of(const JobKey& key, const std::string& job = "train") {
    auto control = control_key(key, job);
    return PskContext::client(control.identity, control.key);
}

std::string take_output(PskChannel& channel) {
    const std::string bytes(channel.output());
    channel.drop_output(bytes.size());
    return bytes;
}

/// Gives it `wire`; the plain bytes that come out.
std::string give(PskChannel& channel, std::string_view wire, std::size_t place_bytes = 4'096) {
    std::string plain, place(place_bytes, '\0');
    while (const auto count = channel.read(wire, place)) plain.append(place, 0, count);
    if (channel.state() == State::open || channel.state() == State::shaking) CHECK(wire.empty());
    return plain;
}

struct TlsPair {
    explicit TlsPair(std::shared_ptr<const PskContext> server_context = server_of({key_a}),
                     std::shared_ptr<const PskContext> client_context = client_of(key_a))
        : server(std::move(server_context)), client(std::move(client_context)) {}

    /// Until nothing is on its way.
    void exchange() {
        for (int i = 0; i < 10 && (!client.output().empty() || !server.output().empty()); ++i) {
            at_server += give(server, take_output(client));
            at_client += give(client, take_output(server));
        }
    }
    PskChannel server, client;
    std::string at_server, at_client;
};

}  // namespace

TEST_CASE("two sides with one key exchange bytes, and the server knows whose key it was") {
    TlsPair pair;
    pair.exchange();
    REQUIRE(pair.client.state() == State::open);
    REQUIRE(pair.server.state() == State::open);
    CHECK(job_of_identity(pair.server.identity()) == "train");
    pair.client.write("hello");
    pair.server.write("who is there");
    pair.exchange();
    CHECK(pair.at_server == "hello");
    CHECK(pair.at_client == "who is there");
    const std::string large(3 << 20, 'x');
    pair.client.write(large);
    pair.exchange();
    CHECK(pair.at_server == "hello" + large);
}

TEST_CASE("a record costs 22 bytes, and a handshake little more than 500") {
    TlsPair pair;
    const auto first = pair.client.output().size();
    const auto server_bytes = give(pair.server, take_output(pair.client));
    const auto second = pair.server.output().size();
    pair.exchange();
    CHECK(first + second < 700);
    pair.client.write("x");
    CHECK(pair.client.output().size() == 1 + 22);
}

TEST_CASE("any pieces, down to single bytes, give the same bytes") {
    TlsPair pair;
    pair.exchange();
    pair.client.write(std::string(40'000, 'a') + "end");
    const auto wire = take_output(pair.client);
    for (std::size_t at = 0; at < wire.size(); ++at) pair.at_server += give(pair.server, {wire.data() + at, 1}, 7);
    CHECK(pair.at_server == std::string(40'000, 'a') + "end");
}

TEST_CASE("another key is refused on both sides, and so is a job that the server does not know") {
    for (const auto& client : {client_of(key_b), client_of(key_b, "another")}) {
        TlsPair pair(server_of({key_a}), client);
        pair.exchange();
        CHECK(pair.server.state() == State::failed);
        CHECK(pair.server.failure() == Cause::wrong_key);
        CHECK(pair.client.state() == State::failed);
        CHECK(pair.client.failure() == Cause::wrong_key);
        CHECK(pair.client.why() != "");
    }
    // The right name with another key under it: what a liar would say.
    TlsPair liar(server_of({key_a}), PskContext::client(control_key(key_a, "train").identity, std::string(32, 'x')));
    liar.exchange();
    CHECK(liar.server.failure() == Cause::wrong_key);
    CHECK(liar.client.failure() == Cause::wrong_key);
    CHECK(liar.client.state() == State::failed);
}

TEST_CASE("during a change of the key, the old one and the new one are accepted") {
    for (const auto& key : {key_a, key_b}) {
        TlsPair pair(server_of({key_b, key_a}), client_of(key));
        pair.exchange();
        CHECK(pair.server.state() == State::open);
        CHECK(pair.client.state() == State::open);
    }
}

TEST_CASE("a server that has not the key cannot answer for one that has") {
    TlsPair pair(PskContext::server([](std::string_view) { return std::string(32, 'x'); }));
    pair.exchange();
    CHECK(pair.client.state() == State::failed);
    CHECK(pair.at_client.empty());
}

TEST_CASE("a daemon without a key says so") {
    PskChannel client(client_of(key_a));
    give(client, PskChannel::keyless_answer());
    CHECK(client.state() == State::failed);
    CHECK(client.failure() == Cause::no_key);
}

TEST_CASE("the end of what a peer says is its word; a cut is none") {
    TlsPair pair;
    pair.exchange();
    pair.client.write("last");
    pair.client.close();
    const auto wire = take_output(pair.client);
    SECTION("whole") {
        CHECK(give(pair.server, wire) == "last");
        CHECK(pair.server.state() == State::ended);
        // The other direction is still open.
        pair.server.write("understood");
        pair.server.close();
        pair.exchange();
        CHECK(pair.at_client == "understood");
        CHECK(pair.client.state() == State::ended);
    }
    SECTION("cut anywhere") {
        const auto size = GENERATE(0, 1, 5, 20, 26, 27, 40);
        give(pair.server, {wire.data(), static_cast<std::size_t>(size)});
        CHECK(pair.server.state() == State::open);
    }
}

TEST_CASE("a changed byte at any place of an exchange never changes what comes out") {
    // Client's first flight, server's, client's second with two messages, server's answer.
    const auto run = [](std::optional<std::size_t> changed, std::size_t& total) {
        TlsPair pair;
        std::size_t at = 0;
        const auto through = [&](std::string wire) {
            for (auto& byte : wire)
                if (at++ == changed) byte = static_cast<char>(byte ^ 0x10);
            return wire;
        };
        give(pair.server, through(take_output(pair.client)));
        give(pair.client, through(take_output(pair.server)));
        if (pair.client.state() == State::open) {
            pair.client.write("first");
            pair.client.write("second");
        }
        pair.at_server = give(pair.server, through(take_output(pair.client)));
        if (pair.server.state() == State::open) pair.server.write("answer");
        pair.at_client = give(pair.client, through(take_output(pair.server)));
        total = at;
        const bool well = pair.at_server == "firstsecond" && pair.at_client == "answer";
        CHECK(std::string_view("firstsecond").starts_with(pair.at_server));
        CHECK(std::string_view("answer").starts_with(pair.at_client));
        return well;
    };
    std::size_t total = 0, ignored = 0;
    REQUIRE(run(std::nullopt, total));
    std::size_t well = 0;
    for (std::size_t i = 0; i < total; ++i) well += run(i, ignored) ? 1 : 0;
    // Only the version in the headers of records, which TLS ignores.
    CHECK(well < 12);
}

TEST_CASE("what is no TLS 1.3 with a key fails, and gives no bytes") {
    const auto hello_12 = [] {
        std::string body("\x03\x03", 2);
        body += std::string(32, 'r') + std::string("\x00\x00\x04\xc0\x2f\x00\x9c\x01\x00", 9);
        std::string message("\x01\x00\x00", 3);
        message += static_cast<char>(body.size());
        message += body;
        std::string record("\x16\x03\x01\x00", 4);
        record += static_cast<char>(message.size());
        return record + message;
    }();
    const std::vector<std::string> others{
        hello_12,
        std::string("\x16\x03\x01", 3) + std::string(100, 'g'),                             // garbage
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, 'h'),                  // a huge record
        std::string("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9) + std::string(20'000, 'i'),  // a huge Hello
        std::string("\x16\x03\x01\x00\x00", 5) + std::string(6'000, '\0'),                  // empty records
        std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'd'),                      // data before a handshake
        std::string("\x14\x03\x03\x00\x01\x01", 6) + std::string(5'000, '\x14'),
    };
    for (const auto& other : others) {
        PskChannel server(server_of({key_a}));
        CHECK(give(server, other).empty());
        CHECK(server.state() == State::failed);
        CHECK(server.failure() == Cause::broken);
        PskChannel client(client_of(key_a));
        CHECK(give(client, other).empty());
        CHECK(client.state() == State::failed);
    }
}

TEST_CASE("a handshake that never ends is cut short") {
    // Each piece is part of one ClientHello that claims 16 MB.
    PskChannel server(server_of({key_a}));
    const std::string record =
        std::string("\x16\x03\x01\x01\x00", 5) + std::string("\x01\x01\xff\x00", 4) + std::string(252, 'x');
    const std::string more = std::string("\x16\x03\x01\x01\x00", 5) + std::string(256, 'x');
    give(server, record);
    std::size_t given = record.size();
    while (server.state() == State::shaking && given < 1'000'000) {
        give(server, more);
        given += more.size();
    }
    CHECK(server.state() == State::failed);
    CHECK(given <= PskChannel::handshake_bytes_max + more.size());
}

TEST_CASE("a second handshake inside a connection ends it") {
    TlsPair pair;
    pair.exchange();
    // What a client of another connection begins with, in clear text and as if it were this one's.
    PskChannel other(client_of(key_a));
    give(pair.server, other.output());
    CHECK(pair.server.state() == State::failed);
}

TEST_CASE("bytes of another connection with the same key are none of this one") {
    TlsPair one, two;
    one.exchange();
    two.exchange();
    one.client.write("pay 5");
    const auto wire = take_output(one.client);
    CHECK(give(two.server, wire).empty());
    CHECK(two.server.state() == State::failed);
    CHECK(give(one.server, wire) == "pay 5");
    CHECK(give(one.server, wire).empty());  // said again
    CHECK(one.server.state() == State::failed);
}

TEST_CASE("a failed channel tells the peer why, and takes nothing more") {
    TlsPair pair;
    pair.exchange();
    give(pair.server, std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'd'));
    REQUIRE(pair.server.state() == State::failed);
    CHECK(pair.server.failure() == Cause::broken);
    CHECK(!pair.server.output().empty());
    pair.server.write("ignored");
    pair.exchange();
    CHECK(pair.client.state() == State::failed);
    CHECK(pair.at_client.empty());
}

TEST_CASE("identities name a job and a key, and only whole ones are found") {
    const JobKeys accepted = [](std::string_view) { return std::vector{key_b, key_a}; };
    const auto own = control_key(key_a, "train");
    CHECK(find_control_key(accepted, own.identity) == own.key);
    CHECK(own.key != key_a);
    CHECK(job_of_identity(own.identity) == "train");
    CHECK(find_control_key(accepted, own.identity.substr(0, 16)).empty());
    CHECK(find_control_key(accepted, "").empty());
    CHECK(find_control_key(accepted, control_key(std::string(32, 'c'), "train").identity).empty());
    CHECK(find_control_key([](std::string_view) { return std::vector<JobKey>(); }, own.identity).empty());
}

TEST_CASE("the identity of a viewer of the status pages names no job") {
    const JobKeys accepted = [](std::string_view) { return std::vector{key_b, key_a}; };
    const auto viewer = status_key(key_a);
    CHECK(find_status_key(accepted, viewer.identity) == viewer.key);
    CHECK(find_status_key(accepted, status_key(std::string(32, 'c')).identity).empty());
    CHECK(find_control_key(accepted, viewer.identity).empty());
    CHECK(find_status_key(accepted, control_key(key_a, "train").identity).empty());
    CHECK(find_status_key(accepted, logs_key(key_a).identity).empty());
    CHECK(find_status_key(accepted, "").empty());
    CHECK(job_of_identity(viewer.identity).empty());
    CHECK(viewer.key != control_key(key_a, "train").key);
}
