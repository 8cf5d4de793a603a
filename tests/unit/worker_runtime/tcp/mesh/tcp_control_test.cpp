// The frames of a control connection, as they come in pieces, and bytes that are none.
#include "worker_runtime/tcp/mesh/tcp_control.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <thread>

#include "tests/support/catch.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster::runtime {

TEST_CASE("control frames come out as they went in, however the bytes arrive") {
    const ControlFrame failed{.code = Errc::timed_out, .unfinished = 7, .text = "rank 3 did not join", .waits_for = {}};
    const ControlFrame asks{.kind = ControlFrame::Kind::asks, .text = {}, .waits_for = {}};
    const ControlFrame gives_up{.kind = ControlFrame::Kind::gives_up, .unfinished = 9, .text = {}, .waits_for = {}};
    const ControlFrame answer{.kind = ControlFrame::Kind::answers, .text = {}, .waits_for = {0, 5, 1023}};
    const ControlFrame left{.kind = ControlFrame::Kind::left, .text = {}, .waits_for = {}};
    std::string bytes;
    std::vector<ControlFrame> taken;
    const ControlFrame over_others{
        .kind = ControlFrame::Kind::asks, .text = {}, .route = {3, 7, 1023}, .place = 1, .waits_for = {}};
    const ControlFrame back{
        .kind = ControlFrame::Kind::answers, .text = {}, .route = {1023, 7, 3}, .place = 2, .waits_for = {5}};
    for (const auto& frame : {asks, answer, failed, gives_up, left, over_others, back}) {
        for (const char byte : encode(frame)) {
            bytes += byte;
            if (auto whole = take_frame(bytes)) taken.push_back(std::move(*whole));
        }
    }
    REQUIRE(taken.size() == 7);
    CHECK(bytes.empty());
    CHECK((taken[0].kind == ControlFrame::Kind::asks && taken[0].route.empty()));
    CHECK((taken[1].kind == ControlFrame::Kind::answers && taken[1].waits_for == std::vector{0, 5, 1023}));
    CHECK((taken[2].kind == ControlFrame::Kind::failed && taken[2].code == Errc::timed_out));
    CHECK((taken[2].unfinished == 7 && taken[2].text == "rank 3 did not join"));
    CHECK((taken[3].kind == ControlFrame::Kind::gives_up && taken[3].unfinished == 9));
    CHECK(taken[4].kind == ControlFrame::Kind::left);
    CHECK((taken[5].kind == ControlFrame::Kind::asks && taken[5].place == 1));
    CHECK((taken[5].route == std::vector{3, 7, 1023} && taken[5].waits_for.empty()));
    CHECK((taken[6].kind == ControlFrame::Kind::answers && taken[6].place == 2));
    CHECK((taken[6].route == std::vector{1023, 7, 3} && taken[6].waits_for == std::vector{5}));
}

TEST_CASE("every frame arrives whole over a connection that is full, encrypted or not") {
    REQUIRE(find_cipher().has_value());
    const std::string one(32, '1'), other(32, '2');
    for (const bool encrypted : {false, true}) {
        int sockets[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
        const int small = 4096;
        REQUIRE(::setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
        const auto records = [&](const std::string& own, const std::string& peers) {
            return encrypted ? std::make_unique<TcpRecords>(own, peers) : nullptr;
        };
        const TcpStream from(FileDescriptor(sockets[0]), records(one, other));
        const TcpStream to(FileDescriptor(sockets[1]), records(other, one));
        constexpr std::uint64_t count = 500;
        std::uint64_t taken = 0;
        std::thread slow_reader([&] {
            std::string bytes;
            for (std::array<char, 97> piece{}; taken < count;) {
                pollfd ready{to.get(), POLLIN, 0};
                const iovec place{piece.data(), piece.size()};
                const auto got = to.receive({&place, 1});
                if (got < 0 && errno == EAGAIN && ::poll(&ready, 1, 60'000) == 1) continue;
                if (got <= 0) return;
                bytes.append(piece.data(), static_cast<std::size_t>(got));
                while (auto frame = take_frame(bytes)) {
                    if (frame->unfinished != taken || frame->text.size() != failure_text_max) return;
                    ++taken;
                }
            }
        });
        // The reader may stand still for longer than the second that a frame has.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (std::uint64_t i = 0; i < count; ++i)
            send_frame(from, {.unfinished = i, .text = std::string(failure_text_max, 'x'), .waits_for = {}}, deadline);
        ::shutdown(from.get(), SHUT_WR);
        slow_reader.join();
        CHECK(taken == count);
    }
}

TEST_CASE("a frame for several peers waits for all that take nothing until one deadline, and reaches the others") {
    std::vector<TcpStream> ours, theirs;
    for (int i = 0; i < 17; ++i) {
        int sockets[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
        const std::array<char, 4096> filling{};
        while (i < 16 && ::send(sockets[0], filling.data(), filling.size(), 0) > 0) continue;
        ours.emplace_back(FileDescriptor(sockets[0]), nullptr);
        theirs.emplace_back(FileDescriptor(sockets[1]), nullptr);
    }
    const auto deadline = frame_deadline();
    for (const auto& one : ours) send_frame(one, {.text = "x", .waits_for = {}}, deadline);
    CHECK(std::chrono::steady_clock::now() < deadline + std::chrono::seconds(10));  // not a deadline for each
    std::array<char, 64> bytes{};
    const iovec place{bytes.data(), bytes.size()};
    CHECK(theirs.back().receive({&place, 1}) > 0);
}

TEST_CASE("a text or a list that is too long for a frame is cut off") {
    std::string bytes = encode({.text = std::string(5000, 'x'), .waits_for = {}});
    CHECK(take_frame(bytes)->text.size() == failure_text_max);
    bytes = encode({.kind = ControlFrame::Kind::answers, .text = {}, .waits_for = std::vector<int>(5000, 4)});
    CHECK(take_frame(bytes)->waits_for == std::vector<int>(failure_text_max / 4, 4));
}

TEST_CASE("bytes that are no frame are a failure, and never a wait without end") {
    std::string bytes(4096, '\xee');
    const auto frame = take_frame(bytes);
    REQUIRE(frame.has_value());
    CHECK((frame->kind == ControlFrame::Kind::failed && frame->code == Errc::bad_frame));
    std::string unknown = encode({.text = "x", .waits_for = {}});
    unknown[0] = 100;
    CHECK(take_frame(unknown)->code == Errc::bad_frame);
}

}  // namespace muster::runtime
