#include "agent/process/process_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>

#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "tests/support/catch.h"
#include "tests/support/end_with_test.h"

using namespace muster::agent;

namespace {

std::vector<pid_t> pids(const std::vector<ProcessFacts>& all) {
    std::vector<pid_t> found;
    for (const auto& facts : all) found.push_back(facts.pid);
    return found;
}

}  // namespace

TEST_CASE("a line of /proc/PID/stat is read whatever the program is called") {
    const std::string rest = "S 10 20 30 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 99 88\n";
    for (const std::string name : {"(sh)", "(a b)", "(evil) S 1 (x)", "())", "(tmux: server)"}) {
        const auto facts = parse_stat("42 " + name + " " + rest);
        REQUIRE(facts);
        CHECK(facts->pid == 42);
        CHECK(facts->state == 'S');
        CHECK(facts->parent == 10);
        CHECK(facts->session == 30);
        CHECK(facts->cpu_ticks == 5 + 6);
        CHECK(facts->ended_children_ticks == 7 + 8);
        CHECK(facts->start_time == 123456);
    }
    CHECK_FALSE(parse_stat(""));
    CHECK_FALSE(parse_stat("42 (sh) S 10"));
    CHECK_FALSE(parse_stat("x (sh) " + rest));
}

TEST_CASE("descendants are found through any depth, parents first, and nobody else is") {
    const auto process = [](pid_t pid, pid_t parent) { return ProcessFacts{.pid = pid, .parent = parent}; };
    const auto found = pids(descendants_of(5, {process(1, 0), process(9, 8), process(8, 5), process(5, 1),
                                               process(6, 5), process(7, 1), process(10, 9), process(11, 7)}));
    REQUIRE(found.size() == 4);
    CHECK((found[0] + found[1]) == 14);  // 8 and 6 in any order
    CHECK(found[2] == 9);
    CHECK(found[3] == 10);
    CHECK(descendants_of(99, {process(1, 0)}).empty());
}

TEST_CASE("children of every thread are listed, and none of a process that is gone") {
    if (!listed_children(::getpid())) {
        WARN("this kernel lists no children");
        return;
    }
    const auto sleeper = [] {
        const auto pid = muster::test::fork_with_test();
        while (pid == 0) ::pause();
        return pid;
    };
    pid_t of_thread = 0;
    std::atomic<bool> is_over = false;
    std::latch forked{1};
    std::thread thread([&] {
        of_thread = sleeper();
        forked.count_down();
        is_over.wait(false);
    });
    forked.wait();
    const auto own = sleeper();
    const auto listed = *listed_children(::getpid());
    CHECK(std::ranges::count(listed, own) == 1);
    CHECK(std::ranges::count(listed, of_thread) == 1);
    for (const auto pid : {own, of_thread}) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    is_over = true;
    is_over.notify_one();
    thread.join();
    CHECK_FALSE(listed_children(own));
}

TEST_CASE("our own cgroup is found in pure and hybrid layouts, and not where it is hidden") {
    const std::string pure = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const std::string hybrid =
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const std::string container = "30 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    CHECK(own_cgroup_directory(pure, "0::/user.slice/a.scope\n") == "/sys/fs/cgroup/user.slice/a.scope");
    CHECK(own_cgroup_directory(pure, "0::/\n") == "/sys/fs/cgroup");
    CHECK(own_cgroup_directory(hybrid, "4:memory:/x\n0::/y\n") == "/sys/fs/cgroup/unified/y");
    CHECK(own_cgroup_directory(container, "0::/docker/abc\n") == "/sys/fs/cgroup");
    CHECK(own_cgroup_directory(container, "0::/docker/abc/d\n") == "/sys/fs/cgroup/d");
    CHECK(own_cgroup_directory(container, "0::/docker/abcd\n").empty());
    CHECK(own_cgroup_directory(container, "0::/../other\n").empty());
    CHECK(own_cgroup_directory("", "0::/x\n").empty());
    CHECK(own_cgroup_directory(pure, "4:memory:/x\n").empty());
}

TEST_CASE(
    "a control group's path may hold blanks, may be shown by one mount of several, and lies nowhere outside of a "
    "namespace") {
    const std::string spaces = "30 1 0:26 / /tmp/a\\040b\\134c rw - cgroup2 cgroup2 rw\n";
    CHECK(own_cgroup_directory(spaces, "0::/my job\n") == "/tmp/a b\\c/my job");
    const std::string several =
        "30 1 0:26 /docker/one\\040pod /mnt/one rw - cgroup2 cgroup2 rw\n"
        "31 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    CHECK(own_cgroup_directory(several, "0::/docker/other\n") == "/sys/fs/cgroup/docker/other");
    CHECK(own_cgroup_directory(several, "0::/docker/one pod/d\n") == "/mnt/one/d");
    const std::string from_above = "30 1 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    CHECK(own_cgroup_directory(from_above, "0::/\n").empty());
    CHECK(own_cgroup_directory(spaces, "0::/../other\n").empty());
    const std::string first =
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory\\0401 rw - cgroup cgroup rw,memory\n";
    CHECK(own_v1_cgroup_directory(first, "5:cpu:/c\n4:net_cls,memory:/docker/abc/a:b\n", "memory") ==
          "/sys/fs/cgroup/memory 1/a:b");
    CHECK(own_v1_cgroup_directory(first, "5:cpu:/c\n4:memory:/docker/xyz\n", "memory").empty());
    CHECK(own_v1_cgroup_directory(first, "5:cpu:/c\n", "cpu") == "/sys/fs/cgroup/cpu/c");
    CHECK(own_v1_cgroup_directory(first, "0::/c\n", "memory").empty());
}
