#include "agent/diagnosis/stack_text.h"

#include "tests/support/catch.h"

using namespace muster::agent;

TEST_CASE("stacks are told with their threads, and the main thread's innermost frames are its place") {
    const auto stacks = read_stacks(
        "thread 42 python3\n"
        "python step (/t.py:6)\n"
        "python <module> (/t.py:9)\n"
        "native 3 frames in libpython3.11.so.1.0\n"
        "native clock_nanosleep (libc.so.6)\n"
        "thread 43 muster-lane\n"
        "python other (/o.py:1)\n"
        "note thread 43: refused\n");
    CHECK(stacks.lines ==
          std::vector<std::string>{"  thread 42 python3:", "    step (/t.py:6)", "    <module> (/t.py:9)",
                                   "    3 frames in libpython3.11.so.1.0", "    clock_nanosleep (libc.so.6)",
                                   "  thread 43 muster-lane:", "    other (/o.py:1)", "    (thread 43: refused)"});
    CHECK(stacks.top == "step (/t.py:6), in clock_nanosleep (libc.so.6)");
}

TEST_CASE("without Python the native frame is the place, and a thread beside has none to give") {
    CHECK(read_stacks("thread 1 a\nnative ?? (x)\nnative pause (libc.so.6)\n").top == "pause (libc.so.6)");
    CHECK(
        read_stacks("thread 1 a\nnative ?? (libc.so.6)\nnative raise (libc.so.6)\nnative f (a)\nnative g (a)\n").top ==
        "raise (libc.so.6), from f (a)");
    CHECK(read_stacks("thread 1 a\nthread 2 b\nnative pause (libc.so.6)\n").top.empty());
}

TEST_CASE("ranks are compared by the innermost Python frame and the program's own, whatever system call they are in") {
    const auto* const stack =
        "thread 42 python3\n"
        "python broadcast (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2714)\n"
        "python wrapper (/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:81)\n"
        "python commit (/job/train.py:44)\n"
        "python main (/job/train.py:60)\n"
        "native epoll_wait (libc.so.6)\n"
        "thread 43 x\n"
        "python loader (/job/data.py:1)\n";
    CHECK(read_stacks(stack).place ==
          "broadcast (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2714), from commit "
          "(/job/train.py:44)");
    CHECK(read_stacks("thread 1 a\npython step (/t.py:6)\nnative f (x)\n").place == "step (/t.py:6)");
    CHECK(read_stacks("thread 1 a\nnative poll (libc.so.6)\nnative wait (train)\n").place == "wait (train)");
}

TEST_CASE("a line that was cut off, unknown words and too many lines are left out") {
    CHECK(read_stacks("").lines.empty());
    CHECK(read_stacks("thread 1 a\nnative pau").lines.size() == 1);
    CHECK(read_stacks("warning x\nnothing\n\n").lines.empty());
    std::string many;
    for (int i = 0; i < 1000; ++i) many += "native f (x)\n";
    CHECK(read_stacks(many).lines.size() == 60);
}
