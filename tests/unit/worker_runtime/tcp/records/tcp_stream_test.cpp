// Encrypted records: what they keep, what they refuse, and that a stream of them behaves as its socket does.
#include "worker_runtime/tcp/records/tcp_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "worker_runtime/tcp/records/record_cipher.h"

namespace muster::runtime {

namespace {

using Bytes = std::vector<std::byte>;
using Use = RecordCipher::Use;

const std::string secret(32, 's'), other_secret(32, 'o');

Bytes some_bytes(std::size_t size, unsigned seed) {
    std::minstd_rand random(seed);
    Bytes bytes(size);
    for (auto& one : bytes) one = static_cast<std::byte>(random());
    return bytes;
}

Bytes seal(RecordCipher& cipher, const Bytes& data) {
    Bytes record(data.size() + record_overhead_bytes);
    const std::span<const std::byte> parts[] = {std::span(data).first(data.size() / 3),
                                                std::span(data).subspan(data.size() / 3)};
    REQUIRE(cipher.seal(parts, record.data()) == record.size());
    return record;
}

/// What `cipher` makes of it; nothing if it refuses it.
Bytes open(RecordCipher& cipher, const Bytes& record) {
    Bytes data(record.size() - record_overhead_bytes);
    const std::span<const std::byte, record_header_bytes> header(record.data(), record_header_bytes);
    if (RecordCipher::body_bytes(header) != record.size() - record_header_bytes) return {};
    return cipher.open(record, data.data()) ? data : Bytes();
}

struct Ends {
    Ends() {
        int sockets[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
        one = TcpStream(FileDescriptor(sockets[0]), std::make_unique<TcpRecords>(secret, other_secret));
        raw = sockets[1];
        other = TcpStream(FileDescriptor(sockets[1]), std::make_unique<TcpRecords>(other_secret, secret));
    }
    TcpStream one, other;
    int raw = -1;
};

}  // namespace

TEST_CASE("a record is opened once, in its place, unchanged, and by whoever has the secret") {
    REQUIRE(find_cipher().has_value());
    RecordCipher sealer(Use::seal, secret);
    std::vector<Bytes> records;
    for (const std::size_t size : {1, 15, 4096, 16384}) records.push_back(seal(sealer, some_bytes(size, 1)));
    const auto text = seal(sealer, Bytes(64, std::byte{'w'}));
    CHECK(std::search_n(text.begin(), text.end(), 4, std::byte{'w'}) == text.end());
    RecordCipher opener(Use::open, secret);
    std::size_t at = 0;
    for (const std::size_t size : {1, 15, 4096, 16384}) CHECK(open(opener, records[at++]) == some_bytes(size, 1));
    // A second time; and each change of a byte, under a cipher of its own.
    CHECK(open(opener, records[3]).empty());
    RecordCipher late(Use::open, secret);
    CHECK(open(late, records[1]).empty());
    RecordCipher stranger(Use::open, other_secret);
    CHECK(open(stranger, records[0]).empty());
    for (std::size_t byte = 0; byte < records[0].size(); ++byte) {
        auto changed = records[0];
        changed[byte] ^= std::byte{1};
        RecordCipher fresh(Use::open, secret);
        CHECK(open(fresh, changed).empty());
    }
}

TEST_CASE("both ends go on to the next key after so many records, and no record is alike") {
    RecordCipher sealer(Use::seal, secret, 3), opener(Use::open, secret, 3), keeps_its_key(Use::open, secret);
    std::vector<Bytes> seen;
    for (unsigned i = 0; i < 10; ++i) {
        const auto record = seal(sealer, some_bytes(100, 7));
        CHECK(std::find(seen.begin(), seen.end(), record) == seen.end());
        seen.push_back(record);
        CHECK(open(opener, record) == some_bytes(100, 7));
        if (i < 4) CHECK(open(keeps_its_key, record).empty() == (i == 3));
    }
}

TEST_CASE(
    "a stream of records gives the bytes in order, whatever sizes are sent and asked for, through a full socket") {
    std::minstd_rand random(3);
    const auto size_up_to = [&](std::size_t most) { return 1 + random() % most; };
    for (unsigned seed = 0; seed < 20; ++seed) {
        Ends ends;
        auto sent = some_bytes(1 + seed * 70'001, seed);
        Bytes received(sent.size());
        std::size_t out = 0, in = 0;
        while (in < received.size()) {
            if (out < sent.size()) {
                // The caller comes again with at least what it could not send.
                const auto first = std::min(size_up_to(100), sent.size() - out);
                const iovec parts[] = {{sent.data() + out, first},
                                       {sent.data() + out + first, sent.size() - out - first}};
                const auto moved = ends.one.send(parts);
                REQUIRE((moved > 0 || errno == EAGAIN));
                if (moved > 0) out += static_cast<std::size_t>(moved);
            }
            const auto first = std::min(size_up_to(50), received.size() - in);
            const auto second = std::min(size_up_to(random() % 2 == 0 ? 300'000 : 3'000), received.size() - in - first);
            const iovec parts[] = {{received.data() + in, first}, {received.data() + in + first, second}};
            const auto got = ends.other.receive(parts);
            REQUIRE((got > 0 || errno == EAGAIN));
            if (got > 0) in += static_cast<std::size_t>(got);
        }
        CHECK(received == sent);
    }
}

TEST_CASE("any number of parts goes in one call, however small they are") {
    for (const std::size_t size : {1, 3, 4096}) {
        Ends ends;
        auto sent = some_bytes(40 * size, 5);
        Bytes received(sent.size());
        std::vector<iovec> parts;
        for (std::size_t at = 0; at < sent.size(); at += size) parts.push_back({sent.data() + at, size});
        CHECK(ends.one.send(parts) == static_cast<ssize_t>(sent.size()));
        const iovec all{received.data(), received.size()};
        CHECK(ends.other.receive({&all, 1}) == static_cast<ssize_t>(sent.size()));
        CHECK(received == sent);
    }
}

TEST_CASE("what a stream has taken from its socket and not given yet is held, and said to be") {
    Ends ends;
    for (const unsigned seed : {1u, 2u}) {
        auto message = some_bytes(100, seed);
        const iovec part{message.data(), message.size()};
        REQUIRE(ends.one.send({&part, 1}) == 100);
    }
    CHECK_FALSE(ends.other.holds_bytes());
    for (const unsigned seed : {1u, 2u}) {
        Bytes got(100);
        const iovec part{got.data(), got.size()};
        REQUIRE(ends.other.receive({&part, 1}) == 100);
        CHECK(got == some_bytes(100, seed));
        // The socket has nothing more after the first message: only the stream knows of the second one.
        pollfd polled{ends.raw, POLLIN, 0};
        CHECK(::poll(&polled, 1, 0) == 0);
        CHECK(ends.other.holds_bytes() == (seed == 1));
    }
}

TEST_CASE("the end of a stream is its end, and bytes that the peer did not send break it for good") {
    Ends ends;
    Bytes data = some_bytes(1000, 1), got(2000);
    const iovec all{data.data(), data.size()}, room{got.data(), got.size()};
    CHECK(ends.other.receive({&room, 1}) == -1);
    CHECK(errno == EAGAIN);
    REQUIRE(ends.one.send({&all, 1}) == 1000);
    CHECK(ends.other.receive({&room, 1}) == 1000);
    Ends broken;
    REQUIRE(broken.one.send({&all, 1}) == 1000);
    const char stranger[] = "\x17\x03\x03\x00\x20 not what the peer has sent, and long enough for a record";
    REQUIRE(::send(broken.one.get(), stranger, sizeof stranger, 0) > 0);
    const iovec first{got.data(), 1000};
    CHECK(broken.other.receive({&first, 1}) == 1000);
    for (int i = 0; i < 2; ++i) {
        CHECK(broken.other.receive({&room, 1}) == -1);
        CHECK(errno == EBADMSG);
    }
    ends.one = {};
    CHECK(ends.other.receive({&room, 1}) == 0);
}

}  // namespace muster::runtime
