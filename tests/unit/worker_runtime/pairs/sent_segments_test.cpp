#include "worker_runtime/pairs/sent_segments.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

constexpr std::size_t bytes = 4'000'000;

struct Connection {
    FileDescriptor from, to;
};

Connection over_loopback() {
    const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listener.get(), at, length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), at, &length) == 0);
    Connection one{FileDescriptor(::socket(AF_INET, SOCK_STREAM, 0)), {}};
    REQUIRE(::connect(one.from.get(), at, length) == 0);
    one.to = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(one.to.get() >= 0);
    return one;
}

void move(const Connection& one) {
    const std::string sent(bytes, 'x');
    std::jthread sender([&] { (void)!::send(one.from.get(), sent.data(), sent.size(), 0); });
    std::string received(bytes, ' ');
    REQUIRE(::recv(one.to.get(), received.data(), received.size(), MSG_WAITALL) == static_cast<ssize_t>(bytes));
}

}  // namespace

TEST_CASE("repeats count as lost only where the receiver does not report to have them twice") {
    CHECK(too_many_lost({.data = 93'678, .again = 770, .twice = 770}, 3).empty());
    CHECK(too_many_lost({.data = 93'678, .again = 770, .twice = 500}, 3).empty());  // 270: less than 3 of 1,000
    CHECK(too_many_lost({.data = 93'678, .again = 770, .twice = 0}, 3) ==
          "packets are lost: of 93678 segments 770 did not arrive");
    CHECK(too_many_lost({.data = 93'678, .again = 770, .twice = 480}, 3) ==
          "packets are lost: of 93678 segments 290 did not arrive");
    // By another limit.
    CHECK(too_many_lost({.data = 93'678, .again = 770, .twice = 0}, 9).empty());
    CHECK(!too_many_lost({.data = 93'678, .again = 770, .twice = 500}, 2).empty());
    // Too few to judge: one segment of 64 KiB among some hundred is no share.
    CHECK(too_many_lost({.data = 100, .again = 1, .twice = 0}, 3).empty());
    CHECK(too_many_lost({.data = 100, .again = 19, .twice = 0}, 3).empty());
    CHECK(too_many_lost({}, 3).empty());
}

TEST_CASE("a kernel that does not count what arrived twice tells nothing of losses") {
    tcp_info info{};
    info.tcpi_data_segs_out = 93'678;
    info.tcpi_total_retrans = 770;
    const auto whole = read_segments(info, sizeof info), cut = read_segments(info, offsetof(tcp_info, tcpi_dsack_dups));
    CHECK(!too_many_lost(whole, 3).empty());
    CHECK(too_many_lost(cut, 3).empty());
    CHECK(sent_since({}, {{1, whole}}).sees_losses);
    CHECK(!sent_since({}, {{1, whole}, {2, cut}}).sees_losses);
    // What did not send anything does not count.
    CHECK(sent_since({{2, cut}}, {{1, whole}, {2, cut}}).sees_losses);
}

TEST_CASE("what this process's connections sent is counted between two times, also on a connection made meanwhile") {
    const auto early = over_loopback();
    move(early);
    const auto before = sent_segments();
    CHECK(sent_since(before, before).data == 0);
    // Segments of loopback have at most 64 KiB.
    constexpr auto least = static_cast<std::int64_t>(bytes / 65536);
    const auto begin = sent_since({}, before).data;
    CHECK(begin >= least);
    move(early);
    const auto first = sent_since(before, sent_segments()).data;
    CHECK(first >= least);
    CHECK(sent_since(before, sent_segments()).bytes_per_s > 0);
    {
        const auto late = over_loopback();
        move(late);
        CHECK(sent_since(before, sent_segments()).data >= first + least);
    }
    // Closed, with all that it has sent.
    CHECK(sent_since(before, sent_segments()).data < first + least);
    CHECK(sent_since(sent_segments(), {}).data == 0);
}
