// Requests and replies to bytes and back, and damage to both.
#include <set>

#include "rendezvous/wire/c10d/limits.h"
#include "rendezvous/wire/c10d/reply.h"
#include "rendezvous/wire/c10d/request.h"
#include "tests/support/c10d_reply.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::c10d;

namespace {

std::vector<Operation> operations_of(Family family) {
    std::vector<Operation> found;
    for (int byte = 0; byte < 256; ++byte)
        if (const auto operation = operation_from_byte(family, static_cast<std::uint8_t>(byte))) {
            CHECK(byte_of(family, *operation) == static_cast<std::uint8_t>(byte));
            found.push_back(*operation);
        }
    return found;
}

std::string encoded(Family family, const Request& request) {
    std::string out;
    encode_request(family, request, out);
    return out;
}

Request sample(Operation operation) {
    Request request;
    request.operation = operation;
    request.key = "/key";
    request.value = "value";
    request.expected = "old";
    request.number = -5;
    request.nonce = 77;
    request.keys = {"/a", "", "/ccc"};
    request.values = {"1", "22", ""};
    return request;
}

Reply sample_reply(Operation operation) {
    Reply reply;
    reply.flag = 3;
    reply.number = operation == Operation::list_keys ? 2 : 1;
    reply.nonce = 77;
    reply.blobs = {"first", "second"};
    if (operation == Operation::queue_pop || operation == Operation::get || operation == Operation::compare_set)
        reply.blobs.pop_back();
    return reply;
}

}  // namespace

TEST_CASE("The families have the operations and numbers of PyTorch") {
    CHECK(operations_of(Family::newer).size() == 20);
    CHECK(operations_of(Family::older).size() == 9);
    CHECK(byte_of(Family::older, Operation::delete_key) == std::uint8_t{8});
    CHECK(byte_of(Family::older, Operation::watch_key) == std::uint8_t{7});
    CHECK_FALSE(byte_of(Family::older, Operation::append));
    CHECK_FALSE(byte_of(Family::newer, Operation::watch_key));
    std::set<std::string_view> names;
    for (const auto operation : operations_of(Family::newer)) names.insert(name(operation));
    CHECK(names.size() == 20);
}

TEST_CASE("Every request survives its encoding, and the scanner finds its end in every chunking") {
    for (const auto family : {Family::newer, Family::older})
        for (const auto operation : operations_of(family)) {
            INFO(name(operation));
            const auto bytes = encoded(family, sample(operation));
            RequestScanner scanner;
            scanner.set_family(family);
            for (std::size_t have = 0; have < bytes.size(); ++have) {
                CHECK(scanner.scan(std::string_view(bytes).substr(0, have)) == Scan::incomplete);
                CHECK((have == 0 || scanner.needed() > have));
                CHECK(scanner.needed() <= bytes.size());
            }
            CHECK(scanner.scan(bytes + "next") == Scan::complete);
            CHECK(scanner.needed() == bytes.size());
            Request decoded;
            REQUIRE(decode_request(family, bytes, nullptr, decoded));
            CHECK(encoded(family, decoded) == bytes);
            CHECK_FALSE(decode_request(family, bytes + "x", nullptr, decoded));
            CHECK_FALSE(decode_request(family, std::string_view(bytes).substr(0, bytes.size() - 1), nullptr, decoded));
        }
}

TEST_CASE("A last value may be received apart from the rest of its request") {
    const std::string value(50'000, 'v');
    for (const auto operation : {Operation::set, Operation::append, Operation::queue_push, Operation::compare_set}) {
        auto request = sample(operation);
        request.value = value;
        const auto bytes = encoded(Family::newer, request);
        RequestScanner scanner;
        CHECK(scanner.scan(std::string_view(bytes).substr(0, 100)) == Scan::incomplete);
        CHECK(scanner.needed() == bytes.size());
        CHECK(scanner.last_value_offset() == bytes.size() - value.size());
        Request decoded;
        const auto head = std::string_view(bytes).substr(0, scanner.last_value_offset());
        REQUIRE(decode_request(Family::newer, head, &value, decoded));
        CHECK(decoded.value == value);
        CHECK(encoded(Family::newer, decoded) == bytes);
        const std::string wrong(49'999, 'v');
        CHECK_FALSE(decode_request(Family::newer, head, &wrong, decoded));
    }
}

TEST_CASE("Damaged requests decode to something or to nothing, and never beyond their bytes") {
    for (const auto family : {Family::newer, Family::older})
        for (const auto operation : operations_of(family)) {
            const auto bytes = encoded(family, sample(operation));
            for (std::size_t at = 0; at < bytes.size(); ++at)
                for (int flip = 1; flip < 256; ++flip) {
                    auto damaged = bytes;
                    damaged[at] = static_cast<char>(damaged[at] ^ flip);
                    RequestScanner scanner;
                    scanner.set_family(family);
                    const auto scanned = scanner.scan(damaged);
                    Request decoded;
                    const bool whole = scanned == Scan::complete;
                    const auto size = whole ? scanner.needed() : damaged.size();
                    CHECK(decode_request(family, std::string_view(damaged).substr(0, size), nullptr, decoded) == whole);
                }
        }
}

TEST_CASE("Every reply survives its encoding, in every chunking") {
    for (const auto operation : operations_of(Family::newer)) {
        if (has_no_reply(operation)) continue;
        INFO(name(operation));
        const auto reply = sample_reply(operation);
        std::string bytes;
        encode_reply(operation, reply, bytes);
        ReplyScanner scanner;
        scanner.start(operation, 2);
        for (std::size_t have = 0; have < bytes.size(); ++have)
            CHECK(scanner.scan(std::string_view(bytes).substr(0, have)) == Scan::incomplete);
        CHECK(scanner.scan(bytes) == Scan::complete);
        CHECK(scanner.needed() == bytes.size());
        Reply decoded;
        REQUIRE(decode_reply(operation, 2, bytes, decoded));
        std::string again;
        encode_reply(operation, decoded, again);
        CHECK(again == bytes);
        CHECK_FALSE(decode_reply(operation, 2, bytes + "x", decoded));
        CHECK_FALSE(decode_reply(operation, 2, std::string_view(bytes).substr(0, bytes.size() - 1), decoded));
    }
}

TEST_CASE("An empty queue is answered with its length alone") {
    Reply reply;
    REQUIRE(decode_reply(Operation::queue_pop, 0, std::string(8, '\0'), reply));
    CHECK(reply.number == 0);
    CHECK(reply.blobs.empty());
}
