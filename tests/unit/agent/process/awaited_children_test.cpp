#include "agent/process/awaited_children.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr AwaitedTimeouts patience{.idle = 3s, .busy = 10s};
constexpr Instant start = Instant(1h);

std::vector<AwaitedChild> seen(std::uint64_t cpu_ticks, pid_t pid = 7, bool in_io = false) {
    return {{.facts = {.pid = pid, .start_time = 50}, .cpu_ticks = cpu_ticks, .in_io = in_io}};
}

}  // namespace

TEST_CASE("an idle child that a worker waits for is due after the short time, once") {
    AwaitedChildren children(patience);
    CHECK(children.due(seen(1), start).empty());
    CHECK(children.due(seen(1), start + 2'900ms).empty());
    CHECK(children.told().empty());
    CHECK(children.due(seen(1), start + 3s).size() == 1);
    CHECK(children.told() == std::vector<pid_t>{7});
    CHECK(children.due(seen(1), start + 30s).empty());
    CHECK(children.due({}, start + 31s).empty());
    CHECK(children.due(seen(1), start + 60s).empty());  // the signal was sent to it
}

TEST_CASE("a child that uses the CPU or is in I/O, and may be saving, is due after the long time") {
    AwaitedChildren children(patience);
    for (int second = 0; second < 10; ++second) {
        const auto ticks = static_cast<std::uint64_t>(second < 5 ? second : 5);
        CHECK(children.due(seen(ticks, 7, second >= 5), start + second * 1s).empty());
    }
    CHECK(children.due(seen(11), start + 10s).size() == 1);
}

TEST_CASE("a wait that ends, and one for another child, begin anew") {
    AwaitedChildren children(patience);
    CHECK(children.due(seen(1), start).empty());
    CHECK(children.due({}, start + 2s).empty());
    CHECK(children.due(seen(1), start + 3s).empty());
    CHECK(children.due(seen(1, 8), start + 5s).empty());
    CHECK(children.due(seen(1, 8), start + 7s).empty());
    CHECK(children.due(seen(1, 8), start + 8s).size() == 1);
}

TEST_CASE("what a thread waits for is read from its system call") {
    const auto wait4 = [](const char* who) {
        return cat(SYS_wait4, " ", who, " 0x7ffd11c530ac 0x0 0x0 0x2 0x1 0x7 0x9\n");
    };
    CHECK(awaited_pid(wait4("0x4d2")) == 1234);
    CHECK(awaited_pid(wait4("0xffffffff")) == 0);  // any child
    CHECK(awaited_pid(wait4("0xffffffffffffffff")) == 0);
    CHECK(awaited_pid(wait4("0x0")) == 0);  // any of its group
    CHECK(awaited_pid(cat(SYS_waitid, " 0x", static_cast<int>(P_PID), " 0x4d2 0x7ffd11c530ac 0x4 0x0 0x0 0x7 0x9\n")) ==
          1234);
    CHECK(awaited_pid(cat(SYS_waitid, " 0x", static_cast<int>(P_ALL), " 0x4d2 0x7ffd11c530ac 0x4 0x0 0x0 0x7 0x9\n")) ==
          0);
    CHECK(awaited_pid(cat(SYS_read, " 0x4d2 0x4d2 0x0 0x0 0x0 0x0 0x7 0x9\n")) == 0);
    for (const char* other : {"", "running\n", "-1 0x7 0x9\n", "61\n", "61 4d2 x\n"}) CHECK(awaited_pid(other) == 0);
}
