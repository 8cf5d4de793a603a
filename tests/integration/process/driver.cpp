#include "tests/integration/process/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/check.h"
#include "tests/support/end_with_test.h"

namespace muster::agent::test {

void become(uid_t user) {
    if (user == 0 || ::geteuid() != 0) return;
    MUSTER_CHECK(::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 && ::setuid(user) == 0, errno);
    ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec by that user: /proc/self is its own again
}

WorkerCommand holding(std::vector<std::string> arguments, std::uint32_t local_rank) {
    auto command = act(std::move(arguments), local_rank);
    command.stdout_plan.inherit = true;
    return command;
}

Driver::Driver(Plan plan) {
    Pipe report;
    const auto worker_count = plan.workers.size();
    pid_ = muster::test::fork_with_test();
    MUSTER_CHECK(pid_ >= 0, errno);
    if (pid_ == 0) run(std::move(plan), life_.write_end.get(), report.write_end.get());
    life_.write_end.reset();
    const auto said = report.read_to_end(60s);
    MUSTER_CHECK(said && !said->empty(), "the driver did not start its workers");
    cgroup_ = said->substr(1);
    // "ready\n" of each worker: its children live, in their sessions.
    for (std::size_t got = 0; got < worker_count * 6;) {
        char bytes[64];
        const auto size = ::read(life_.read_end.get(), bytes, std::min(sizeof bytes, worker_count * 6 - got));
        MUSTER_CHECK(size > 0, got);
        got += static_cast<std::size_t>(size);
    }
}

void Driver::run(Plan plan, int life, int report) {
    ::dup2(life, 1);
    become(plan.user);
    muster::test::end_with_test();
    const auto workers = plan.workers;
    HostFixture fixture(plan.guardian);
    fixture.host->set_death_notice("last words");
    fixture.host->feed();
    fixture.host->start(workers);
    const auto have_started = [&] {
        fixture.host->feed();
        return fixture.all<WorkerStarted>().size() >= workers.size();
    };
    if (fixture.run_until(have_started)) {
        const auto said = "s" + fixture.cgroup;
        if (::write(report, said.data(), said.size()) < 0) ::_exit(1);
    }
    ::close(report);
    for (;;) {
        fixture.run_for(plan.feed_every);
        fixture.host->feed();
    }
}

Driver::~Driver() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

void Driver::send(int signal) const {
    ::kill(pid_, signal);
}

bool Driver::tree_ended(Duration limit) {
    return life_.read_to_end(limit).has_value();
}

}  // namespace muster::agent::test
