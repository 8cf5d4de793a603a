#include "launcher/commands/stack_groups.h"

#include <string>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

std::string worker(int rank, int thread, const std::string& place) {
    return cat("rank ", rank, ":\n  thread ", thread, " python3:\n    ", place, "\n");
}

}  // namespace

TEST_CASE("workers with the same frames are one group, and who is alone comes first") {
    StackGroups groups;
    groups.add("a (pid 1)", cat(worker(0, 10, "all_reduce (train.py:7)"), worker(1, 11, "all_reduce (train.py:7)")));
    groups.add("b (pid 2)", cat(worker(2, 12, "load (train.py:3)"), worker(3, 13, "all_reduce (train.py:7)")));
    CHECK(groups.has_worker());
    CHECK(groups.text() ==
          "rank 2 on b (pid 2):\n  thread 12 python3:\n    load (train.py:3)\n"
          "ranks 0-1,3 on a (pid 1), b (pid 2):\n  thread python3:\n    all_reduce (train.py:7)\n");
}

TEST_CASE("the line of a program is no thread's id: workers at two lines are two groups") {
    StackGroups groups;
    groups.add("a", cat(worker(0, 1, "step (train.py:7)"), worker(1, 2, "step (train.py:8)")));
    CHECK(groups.text() ==
          "rank 0 on a:\n  thread 1 python3:\n    step (train.py:7)\n"
          "rank 1 on a:\n  thread 2 python3:\n    step (train.py:8)\n");
}

TEST_CASE("many nodes are counted, and those without workers are told") {
    StackGroups groups;
    for (int i = 0; i < 1000; ++i) groups.add(cat("n", i), worker(i, i, "wait (a.py:1)"));
    groups.add("idle", "");
    groups.add("odd", "what is this\n");
    CHECK(groups.text() ==
          "ranks 0-999 on 1000 nodes:\n  thread python3:\n    wait (a.py:1)\nno worker runs on idle, odd\n");
    CHECK_FALSE(StackGroups().has_worker());
}

TEST_CASE("what a program calls itself does nothing to a terminal") {
    StackGroups groups;
    groups.add("a", "rank 0:\n  thread 1 \x1b[2J:\n");
    CHECK(groups.text().find('\x1b') == std::string::npos);
}
