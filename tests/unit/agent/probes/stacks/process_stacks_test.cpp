#include "agent/probes/stacks/process_stacks.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "agent/probes/stacks/native_frames.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/end_with_test.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

/// By this name it is looked for.
extern "C" [[gnu::noinline]] void muster_test_waits_here() {
    for (;;) ::pause();
}

namespace {

struct Process : test::Child {
    explicit Process(pid_t child) : Child(child) { REQUIRE(child > 0); }
    /// False where it is in another state for a minute.
    [[nodiscard]] bool comes_to(char wanted) const {
        for (int i = 0; i < 6000; ++i, ::usleep(10000)) {
            const auto stat = read_file(cat("/proc/", pid, "/stat"));
            if (stat.at(stat.rfind(')') + 2) == wanted) return true;
        }
        return false;
    }
};

/// `work` in a child, once the child has begun it as far as closing its end of a pipe says.
template <class Work>
pid_t start(const Work& work) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const auto pid = test::fork_with_test();
    if (pid == 0) {
        ::close(ends[0]);
        work(ends[1]);
        ::_exit(1);
    }
    ::close(ends[1]);
    char ready = 0;
    const auto got = ::read(ends[0], &ready, 1);
    ::close(ends[0]);
    REQUIRE(got == 1);
    return pid;
}

pid_t start_waiting() {
    return start([](int ready) {
        if (::write(ready, "r", 1) == 1) muster_test_waits_here();
    });
}

std::vector<std::string> stacks_of(pid_t pid) {
    std::vector<std::string> lines;
    report_stacks(pid, [&](std::string line) { lines.push_back(std::move(line)); });
    return lines;
}

/// With each part of `wanted` in a line. Each thread of the child may still be on its way to where it waits, and on a
/// busy host one may stop too late to be looked at.
std::vector<std::string> stacks_with(pid_t pid, const std::vector<std::string>& wanted) {
    for (int i = 0; i < 6000; ++i) {
        auto lines = stacks_of(pid);
        const auto is_there = [&](const std::string& part) {
            return std::ranges::any_of(lines, [&](const auto& line) { return line.find(part) != std::string::npos; });
        };
        if (std::ranges::all_of(wanted, is_there)) return lines;
        ::usleep(10000);
    }
    return stacks_of(pid);
}

bool has(const std::vector<std::string>& lines, const std::string& part) {
    INFO(join(lines, "\n") << "\n-- and not: " << part);
    const bool found =
        std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.find(part) != std::string::npos; });
    CHECK(found);
    return found;
}

}  // namespace

TEST_CASE("a function's name is told without its arguments") {
    const auto check = [](std::string_view name, std::string_view short_name) {
        CHECK(without_arguments(name) == short_name);
    };
    check("main", "main");
    check("f(int, g<h>)", "f");
    check("a::(anonymous namespace)::f(int) const", "a::(anonymous namespace)::f");
    check("std::function<void (int)>::operator()(int) const", "std::function<void (int)>::operator()");
    check("a::operator<(b const&)", "a::operator<");
    check("a::operator->()", "a::operator->");
    check("f()::{lambda(int)#1}::operator()(int) const", "f");
    check("operator new(unsigned long)", "operator new");
    check("broken<(", "broken<(");
}

TEST_CASE("a process's frames are named, and it runs on") {
    const Process child(start_waiting());
    const auto lines = stacks_with(child.pid, {"native muster_test_waits_here", "pause"});
    REQUIRE_FALSE(lines.empty());
    CHECK(lines[0].starts_with(cat("thread ", child.pid, " stacks_test")));
    has(lines, "native muster_test_waits_here (stacks_test)");
    has(lines, "pause");
    CHECK(child.comes_to('S'));
    CHECK(::waitpid(child.pid, nullptr, WNOHANG | WUNTRACED) == 0);
}

TEST_CASE("a process that was stopped stays stopped, and one that is held by another is left alone") {
    const Process child(start_waiting());
    const std::string place = "native muster_test_waits_here";
    has(stacks_with(child.pid, {place}), place);
    REQUIRE(::kill(child.pid, SIGSTOP) == 0);
    REQUIRE(::waitpid(child.pid, nullptr, WUNTRACED) == child.pid);
    has(stacks_with(child.pid, {place}), place);
    CHECK(child.comes_to('T'));  // let go, it passes through the kernel once more
    // This test holds it: whoever else wants to is refused, and says why.
    REQUIRE(::ptrace(PTRACE_SEIZE, child.pid, nullptr, nullptr) == 0);
    has(stacks_of(child.pid), cat("note look into thread ", child.pid, ": Operation not permitted (kernel.yama"));
    REQUIRE(::kill(child.pid, SIGCONT) == 0);
}

TEST_CASE("a process that is gone is told as such") {
    pid_t pid = 0;
    {
        const Process child(start_waiting());
        pid = child.pid;
    }
    const auto lines = stacks_of(pid);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with("note "));
}

TEST_CASE("Python's frames are read of a program that knows nothing of it") {
    const char* const python = std::getenv("MUSTER_STACKS_PYTHON");
    REQUIRE(python != nullptr);
    const test::ScratchFolder folder;
    const auto script = folder / "train.py";
    std::ofstream(script) << "import os, threading, time\n"
                             "class Trainer:\n"
                             "    def step(self, n):\n"
                             "        if n:\n"
                             "            return self.step(\n"
                             "                n - 1)\n"
                          << std::string(200, '\n')  // a step of the line table that takes two bytes
                          << "        os.write(1, b'r')\n"
                             "        time.sleep(100)\n"
                             "def \u00e9cho():\n"
                             "    time.sleep(100)\n"
                             "threading.Thread(target=\u00e9cho, daemon=True).start()\n"
                             "Trainer().step(2)\n";
    const Process child(start([&](int ready) {
        ::dup2(ready, 1);
        ::execlp(python, python, script.c_str(), nullptr);
    }));
    const std::vector<std::string> wanted{
        cat("python Trainer.step (", script, ":208)"), cat("python Trainer.step (", script, ":5)"),
        cat("python <module> (", script, ":212)"), cat("python \u00e9cho (", script, ":210)"), "nanosleep (libc.so.6)"};
    const auto lines = stacks_with(child.pid, wanted);
    for (const auto& part : wanted) has(lines, part);
    CHECK(child.comes_to('S'));
}
