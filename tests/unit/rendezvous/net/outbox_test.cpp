#include "rendezvous/net/outbox.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tests/support/catch.h"

using namespace muster::rendezvous;

namespace {

struct Pair {
    Pair() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0); }
    ~Pair() {
        ::close(ends[0]);
        if (ends[1] >= 0) ::close(ends[1]);
    }
    std::string receive() const {
        std::string out;
        std::array<char, 65536> piece;
        for (ssize_t size; (size = ::recv(ends[1], piece.data(), piece.size(), 0)) > 0;) {
            out.append(piece.data(), static_cast<std::size_t>(size));
        }
        return out;
    }
    std::array<int, 2> ends{-1, -1};
};

}  // namespace

TEST_CASE("copied and shared bytes leave in the order in which they were pushed") {
    Pair pair;
    Outbox box;
    box.push("one ");
    box.push("two ");
    box.push(std::make_shared<const std::string>("three "));
    box.push("four");
    CHECK(box.unsent_bytes() == 18);
    CHECK(box.flush(pair.ends[0]) == Outbox::Flush::sent);
    CHECK(box.empty());
    CHECK(pair.receive() == "one two three four");
}

TEST_CASE("a full socket blocks, and the rest goes out whole and in order") {
    Pair pair;
    Outbox box;
    std::string expected;
    // More pieces than one system call takes, of sizes that fall anywhere.
    for (int i = 0; i < 700; ++i) {
        const std::string piece(static_cast<std::size_t>(i * 7 + 1), static_cast<char>('a' + i % 26));
        expected += piece;
        if (i % 3 == 0)
            box.push(std::make_shared<const std::string>(piece));
        else
            box.push(piece);
    }
    std::string received;
    bool blocked = false;
    while (!box.empty()) {
        const auto flushed = box.flush(pair.ends[0]);
        REQUIRE(flushed != Outbox::Flush::broken);
        blocked = blocked || flushed == Outbox::Flush::blocked;
        received += pair.receive();
        REQUIRE(box.unsent_bytes() + received.size() == expected.size());
    }
    CHECK(blocked);
    CHECK(received == expected);
}

TEST_CASE("what a slow reader has got is freed while it is slow") {
    Pair pair;
    Outbox box;
    const auto first = std::make_shared<const std::string>(1000, 'x');
    box.push(first);
    box.push(std::make_shared<const std::string>(8 << 20, 'y'));
    CHECK(box.flush(pair.ends[0]) == Outbox::Flush::blocked);
    CHECK(first.use_count() == 1);
}

TEST_CASE("a closed peer breaks the flush and raises no signal") {
    Pair pair;
    ::close(std::exchange(pair.ends[1], -1));
    Outbox box;
    box.push("into the void");
    CHECK(box.flush(pair.ends[0]) == Outbox::Flush::broken);
    CHECK(errno == EPIPE);
}

TEST_CASE("an outbox counts the memory that it holds, and an empty one holds next to nothing") {
    Pair pair;
    Outbox box;
    const auto shared = std::make_shared<const std::string>(300, 's');
    for (int i = 0; i < 100'000; ++i) box.push(shared);
    // Each reference is an entry of a list, whatever is charged for the bytes that they share.
    CHECK(box.held_bytes() >= 100'000 * sizeof(std::string));
    box.push(std::string(70'000, 'o'));
    box.push("one more makes a block of its own");
    CHECK(box.held_bytes() >= 100'000 * sizeof(std::string) + 70'000);
    std::size_t received = 0;
    for (std::size_t before = box.held_bytes(); !box.empty();) {
        REQUIRE(box.flush(pair.ends[0]) != Outbox::Flush::broken);
        received += pair.receive().size();
        CHECK(box.held_bytes() <= std::exchange(before, box.held_bytes()));
    }
    CHECK(received == 100'000 * 300 + 70'000 + 33);
    CHECK(box.held_bytes() == 0);
    box.push("x");
    CHECK(box.held_bytes() < 4'096);
}
