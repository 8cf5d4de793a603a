#include "tests/integration/process/host_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "agent/process/process_tree.h"
#include "rendezvous/base/check.h"
#include "tests/support/own_process.h"

namespace muster::agent::test {

TemporaryDirectory::TemporaryDirectory() {
    auto name = (std::filesystem::temp_directory_path() / "muster process test XXXXXX").string();  // blanks on purpose
    MUSTER_CHECK(::mkdtemp(name.data()) != nullptr, name);
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0777));
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

Pipe::Pipe() {
    int ends[2];
    MUSTER_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
}

std::optional<std::string> Pipe::read(Duration limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::string all;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd ready{read_end.get(), POLLIN, 0};
        if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) return std::nullopt;
        char bytes[65536];
        const auto size = ::read(read_end.get(), bytes, sizeof bytes);
        if (size <= 0) return all;
        all.append(bytes, static_cast<std::size_t>(size));
    }
}

std::vector<pid_t> guardians() {
    std::vector<pid_t> found;
    for (const auto& facts : descendants_of(::getpid(), all_processes()))
        if (facts.parent == ::getpid() && facts.alive() && facts.session == facts.pid) found.push_back(facts.pid);
    return found;
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string actor() {
    return MUSTER_WORKER_PROGRAMS "/actor";
}

WorkerCommand act(std::vector<std::string> arguments, std::uint32_t local_rank) {
    WorkerCommand command;
    command.local_rank = local_rank;
    command.argv = std::move(arguments);
    command.argv.insert(command.argv.begin(), actor());
    command.environment = {"PATH=/usr/bin:/bin"};
    command.stdout_plan.inherit = false;
    command.stderr_plan.inherit = false;
    return command;
}

HostFixture::HostFixture(GuardianConfig config, Console console) {
    // A thread of the fixture before that was joined may still be on the kernel's list.
    MUSTER_CHECK(run_until([] { return muster::test::threads_alive() == 1; }), muster::test::threads_alive());
    auto handle = fork_guardian(std::move(config));
    MUSTER_CHECK(handle.has_value(), handle.has_error() ? describe(handle.error()) : "");
    guardian_pid = handle->pid;
    cgroup = handle->cgroup;
    host = PosixProcessHost::make(context, std::move(*handle), console);
    host->on_event = [this](ProcessEvent event) { events.push_back(std::move(event)); };
}

HostFixture::~HostFixture() = default;

bool HostFixture::run_until(const std::function<bool()>& seen, Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!seen()) {
        if (context.stopped()) context.restart();
        // Processes come and go without an event, too.
        context.run_one_until(std::min(deadline, std::chrono::steady_clock::now() + 20ms));
        if (std::chrono::steady_clock::now() >= deadline) return seen();
    }
    return true;
}

void HostFixture::run_for(Duration time) {
    run_until([] { return false; }, time);
}

WorkerEnded HostFixture::run(WorkerCommand command) {
    const auto before = all<WorkerEnded>().size();
    host->start({std::move(command)});
    MUSTER_CHECK(wait_for<WorkerEnded>(before + 1), "a worker's end was not reported");
    return all<WorkerEnded>().back();
}

}  // namespace muster::agent::test
