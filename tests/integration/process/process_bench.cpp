// Figures of the process host, one line each: how fast workers start, how fast a death is seen, how fast lines pass.
//   process_bench [WORKERS [LINES]]
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/integration/process/host_fixture.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

double ms(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

void print_median(const char* what, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%-58s median %8.3f ms, worst %8.3f ms\n", what, values[values.size() / 2], values.back());
}

void start_and_kill(std::uint32_t worker_count, CgroupUse cgroup) {
    GuardianConfig config;
    config.cgroup = cgroup;
    HostFixture fixture(config);
    std::vector<double> started, seen, emptied;
    for (int i = 0; i < 50; ++i) {
        fixture.events.clear();
        std::vector<WorkerCommand> commands;
        for (std::uint32_t rank = 0; rank < worker_count; ++rank) commands.push_back(act({"pause"}, rank));
        auto from = std::chrono::steady_clock::now();
        fixture.host->start(std::move(commands));
        fixture.wait_for<WorkerStarted>(worker_count);
        started.push_back(ms(std::chrono::steady_clock::now() - from));
        from = std::chrono::steady_clock::now();
        ::kill(fixture.all<WorkerStarted>()[0].pid, SIGKILL);
        fixture.wait_for<WorkerEnded>();
        seen.push_back(ms(std::chrono::steady_clock::now() - from));
        from = std::chrono::steady_clock::now();
        fixture.host->kill_tree();
        fixture.wait_for<TreeEmpty>();
        emptied.push_back(ms(std::chrono::steady_clock::now() - from));
    }
    std::printf("%u workers, cgroup: %s\n", worker_count, fixture.cgroup.empty() ? "none" : fixture.cgroup.c_str());
    const auto memory = contents("/proc/" + std::to_string(fixture.guardian_pid) + "/smaps_rollup");
    const auto pss = memory.find("\nPss:");
    if (pss != std::string::npos)
        std::printf("  guardian %s\n", memory.substr(pss + 1, memory.find('\n', pss + 1) - pss - 1).c_str());
    print_median("  start() -> all exec'd and reported", started);
    print_median("  one SIGKILLed -> WorkerEnded", seen);
    print_median("  kill_tree() -> TreeEmpty", emptied);
}

void tee(std::uint32_t worker_count, const std::string& line_count) {
    const TemporaryDirectory directory;
    HostFixture* fixture = nullptr;
    Pipe console;
    HostFixture made({}, {console.write_end.get(), console.write_end.get()});
    fixture = &made;
    std::uint64_t lines = 0, bytes = 0;
    std::thread reader([&] {
        std::vector<char> buffer(1 << 20);
        for (;;) {
            const auto size = ::read(console.read_end.get(), buffer.data(), buffer.size());
            if (size <= 0) return;
            bytes += static_cast<std::uint64_t>(size);
            lines += static_cast<std::uint64_t>(std::count(buffer.data(), buffer.data() + size, '\n'));
        }
    });
    std::vector<WorkerCommand> commands;
    for (std::uint32_t rank = 0; rank < worker_count; ++rank) {
        auto command = act({}, rank);
        command.argv = {MUSTER_WORKER_PROGRAMS "/lines", line_count};
        command.environment.push_back("LOCAL_RANK=" + std::to_string(rank));
        command.stdout_plan.console = true;
        command.stdout_plan.prefix = "[default" + std::to_string(rank) + "]:";
        command.stdout_plan.file = directory.file(std::to_string(rank) + ".log");
        commands.push_back(std::move(command));
    }
    const auto from = std::chrono::steady_clock::now();
    fixture->host->start(std::move(commands));
    fixture->wait_for<WorkerEnded>(worker_count, 120s);
    fixture->end();
    const double seconds = ms(std::chrono::steady_clock::now() - from) / 1000;
    console.write_end.reset();
    reader.join();
    std::printf("tee of %u workers x %s lines: %llu lines (%llu bytes) in %.3f s = %.0f lines/s\n", worker_count,
                line_count.c_str(), static_cast<unsigned long long>(lines), static_cast<unsigned long long>(bytes),
                seconds, static_cast<double>(lines) / seconds);
}

}  // namespace

int main(int argc, char** argv) {
    const auto worker_count = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 8);
    start_and_kill(worker_count, CgroupUse::never);
    start_and_kill(worker_count, CgroupUse::when_delegated);
    tee(worker_count, argc > 2 ? argv[2] : "100000");
}
