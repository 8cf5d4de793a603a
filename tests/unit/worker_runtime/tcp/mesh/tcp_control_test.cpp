// The frames of a control connection, as they come in pieces, and bytes that are none.
#include "worker_runtime/tcp/mesh/tcp_control.h"
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
    for (const auto& frame : {asks, answer, failed, gives_up, left}) {
        for (const char byte : encode(frame)) {
            bytes += byte;
            if (auto whole = take_frame(bytes)) taken.push_back(std::move(*whole));
        }
    }
    REQUIRE(taken.size() == 5);
    CHECK(bytes.empty());
    CHECK(taken[0].kind == ControlFrame::Kind::asks);
    CHECK((taken[1].kind == ControlFrame::Kind::answers && taken[1].waits_for == std::vector{0, 5, 1023}));
    CHECK((taken[2].kind == ControlFrame::Kind::failed && taken[2].code == Errc::timed_out));
    CHECK((taken[2].unfinished == 7 && taken[2].text == "rank 3 did not join"));
    CHECK((taken[3].kind == ControlFrame::Kind::gives_up && taken[3].unfinished == 9));
    CHECK(taken[4].kind == ControlFrame::Kind::left);
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
