#include "rendezvous/wire/local/codec.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::local;

namespace {

Sender sender_of(const Message& message) {
    const bool of_agent = std::holds_alternative<RoundEnded>(message) || std::holds_alternative<Notice>(message) ||
                          std::holds_alternative<Offer>(message) || std::holds_alternative<RanksKey>(message) ||
                          std::holds_alternative<Hold>(message) || std::holds_alternative<Resumed>(message);
    return of_agent ? Sender::agent : Sender::worker;
}

const std::vector<Message> one_of_each = {Hello{2, 4242, "muster 0.1.0", "0123abcd"},
                                          Progress{1234567},
                                          Section{"all_reduce", 90},
                                          Heartbeat{},
                                          Give{HandoverKind::flight_record, 1ULL << 40, 7, -1, "/ckpt"},
                                          AskRanksKey{"0123abcd"},
                                          CanKeep{true},
                                          Held{},
                                          Steps{},
                                          Hold{5000, "rank 3 on gpu07 failed"},
                                          Resumed{{"RANK=2", "MUSTER_STORE_ADDR"}},
                                          Offer{HandoverKind::snapshot, 77},
                                          RanksKey{std::string(32, 'k')},
                                          RoundEnded{"rank 3 on gpu07 failed"},
                                          Notice{-1, "preempted in 30 s"},
                                          Give{HandoverKind::copy, 1ULL << 33, 8, 3}};

}  // namespace

TEST_CASE("every message of the agent-worker channel survives the wire") {
    REQUIRE(one_of_each.size() == std::variant_size_v<Message> + 1);  // a Give has two forms
    for (const auto& message : one_of_each) {
        INFO(name(message));
        CHECK(decode(encode(message), sender_of(message)).value() == message);
    }
}

TEST_CASE("the bytes are those of the table") {
    CHECK(encode(Progress{0x0102}) == std::string("\x02\x02\x01\0\0\0\0\0\0", 9));
    CHECK(encode(RoundEnded{"ab"}) == std::string("\x41\x02\0ab", 5));
}

TEST_CASE("every truncation and every surplus byte is refused") {
    for (const auto& message : one_of_each) {
        const std::string bytes = encode(message);
        for (std::size_t size = 0; size < bytes.size(); ++size)
            CHECK(decode(std::string_view(bytes).substr(0, size), sender_of(message)).has_error());
        CHECK(decode(bytes + '\0', sender_of(message)).has_error());
    }
}

TEST_CASE("a flipped byte gives an error or a message that encodes to the same bytes") {
    for (const auto& message : one_of_each) {
        for (std::size_t at = 0; at < encode(message).size(); ++at) {
            for (int bit = 0; bit < 8; ++bit) {
                std::string bytes = encode(message);
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
                for (const Sender sender : {Sender::worker, Sender::agent}) {
                    const auto decoded = decode(bytes, sender);
                    if (decoded.has_value()) CHECK(encode(decoded.value()) == bytes);
                }
            }
        }
    }
}

TEST_CASE("a side that speaks the other's words is refused, and a newer one's words are passed over") {
    CHECK(decode(encode(RoundEnded{"x"}), Sender::worker).error().code == Errc::bad_frame);
    CHECK(decode(encode(Heartbeat{}), Sender::agent).error().code == Errc::bad_frame);
    CHECK(decode("\x3f", Sender::worker).error().code == Errc::unsupported);
    CHECK(decode("\x7f", Sender::agent).error().code == Errc::unsupported);
    CHECK(decode(std::string(4096, '\x02'), Sender::worker).error().code == Errc::bad_frame);
}

TEST_CASE("a Hello of version 1 may lack its token, one of a newer version may have more") {
    const std::string token("\0\0", 2);
    auto old = encode(Hello{1, 7, "muster", ""});
    old.resize(old.size() - token.size());
    CHECK(std::get<Hello>(decode(old, Sender::worker).value()) == Hello{1, 7, "muster", ""});
    CHECK(std::get<Hello>(decode(old + token, Sender::worker).value()) == Hello{1, 7, "muster", ""});
    const Hello newer{protocol_version + 1, 7, "muster", "0123"};
    CHECK(std::get<Hello>(decode(encode(newer) + "more", Sender::worker).value()) == newer);
}

TEST_CASE("a Resumed has a limit of variables") {
    const Resumed most{std::vector<std::string>(variables_max, std::string(variable_bytes_max, 'v'))};
    const auto bytes = encode(most);
    CHECK(bytes.size() <= datagram_bytes_max);
    CHECK(std::get<Resumed>(decode(bytes, Sender::agent).value()) == most);
    auto more = bytes;
    ++more[1];
    CHECK(decode(more + std::string("\0\0", 2), Sender::agent).error().code == Errc::bad_frame);
}

TEST_CASE("a sentence that is too long is cut and not refused") {
    const auto decoded = decode(encode(RoundEnded{std::string(5000, 'x')}), Sender::agent);
    CHECK(std::get<RoundEnded>(decoded.value()).why.size() == sentence_bytes_max);
}
