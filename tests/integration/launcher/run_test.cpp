// From start to end on one node and on two: exit codes, streams, signals.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "agent/process/signal_handlers.h"
#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/wire/native/worker_end.h"
#include "tests/integration/launcher/muster_process.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/holds.h"
#include "tests/support/line_times.h"
#include "tests/support/scratch_folder.h"

using muster::read_file;
using namespace muster::test;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

namespace {

Words shell(Words options, const std::string& script) {
    options.insert(options.end(), {"--no-python", "sh", "-c", script});
    return options;
}

/// The moment at which a launcher runs its own code: it handles the signal. Before, the system's loader maps the
/// program, and every program ends by a signal without a word.
bool is_ready_for(int number, pid_t pid) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    const auto path = "/proc/" + std::to_string(pid) + "/status";
    while (std::chrono::steady_clock::now() < until) {
        const auto status = read_file(path);
        if (status.starts_with("Name:\tmuster\n") && muster::agent::status_handles_signal(status, number)) return true;
    }
    return false;
}

int code_of(Words words) {
    MusterProcess muster(std::move(words));
    return muster.wait();
}

/// The guardian of a launcher removes it a moment after the launcher's end.
bool leaves_no_control_group(pid_t pid) {
    const auto own = muster::own_cgroup_directory(read_file("/proc/self/mountinfo"), read_file("/proc/self/cgroup"));
    const auto group = own + "/muster-" + std::to_string(pid);
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (std::filesystem::exists(group)) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

}  // namespace

TEST_CASE("the exit code is the root cause's, and 1 for every failure in torchrun's style") {
    CHECK(code_of(shell({"--nproc-per-node=2"}, "exit 0")) == 0);
    for (const int code : {1, 2, 7, 75, 76, 77, 78, 126, 127, 255}) {
        CHECK(code_of(shell({}, "exit " + std::to_string(code))) == code);
        CHECK(code_of(shell({"--exit-code=torchrun"}, "exit " + std::to_string(code))) == 1);
    }
    // $$$$ reaches the shell as $$: torchrun's macros make one $ of two, and so do ours.
    CHECK(code_of(shell({}, "kill -9 $$$$")) == 137);
    CHECK(code_of(shell({}, "kill -11 $$$$")) == 139);
    CHECK(code_of(shell({"--max-restarts=1"}, "test $TORCHELASTIC_RESTART_COUNT = 1")) == 0);
    CHECK(code_of(shell({"--max-restarts=1"}, "exit 5")) == 5);
}

TEST_CASE("a failure is reported with rank, pid, code and the last lines of stderr; a success says nothing") {
    MusterProcess failed(shell({"--nproc-per-node=2"}, "test $RANK = 0 && exec sleep 60; echo the-reason >&2; exit 9"));
    CHECK(failed.wait() == 9);
    CHECK(holds(failed.err(), "rank 1"));
    CHECK(holds(failed.err(), "exit code 9"));
    CHECK(holds(failed.err(), "the-reason"));
    MusterProcess fine(shell({"--nproc-per-node=2", "--preflight=off"}, "echo out"));
    CHECK(fine.wait() == 0);
    CHECK(fine.out() == "out\nout\n");
    CHECK(without_standstills(fine.err()).empty());
}

TEST_CASE("a signal stops the job: 128+n, and the workers get the same signal") {
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        MusterProcess muster(
            shell({}, "trap 'echo got-it; exit 0' TERM INT HUP; echo ready; while :; do sleep 0.05; done"));
        REQUIRE(muster.wait_for("ready"));
        muster.signal(number);
        CHECK(muster.wait() == 128 + number);
        CHECK(holds(muster.out(), "got-it"));
    }
}

TEST_CASE("a signal to a launcher that still reads its options ends it with a sentence") {
    ScratchFolder folder;
    const auto never_written = folder / "job.toml";
    REQUIRE(::mkfifo(never_written.c_str(), 0600) == 0);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        MusterProcess muster({"--config", never_written});
        REQUIRE(is_ready_for(number, muster.pid()));
        muster.signal(number);
        CHECK(muster.wait() == 128 + number);
        CHECK(holds(muster.err(), muster::signal_name(number) + " during start-up; no worker was started"));
    }
    // As under nohup.
    MusterProcess deaf({"--config", never_written}, {.ignored_signal = SIGHUP});
    REQUIRE(is_ready_for(SIGTERM, deaf.pid()));
    deaf.signal(SIGHUP);
    deaf.signal(SIGTERM);
    CHECK(deaf.wait() == 143);
    CHECK(!holds(deaf.err(), "SIGHUP"));
}

TEST_CASE("a signal at any moment of a launcher's start is answered with a sentence and 128+n") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> moment(0, 20'000);
    for (int start = 0; start < effort(100, 60); ++start) {
        MusterProcess muster({"--standalone", "--no-python", "sleep", "60"});
        REQUIRE(is_ready_for(SIGTERM, muster.pid()));
        const std::chrono::microseconds after(moment(random));
        std::this_thread::sleep_for(after);
        muster.signal(SIGTERM);
        INFO("start " << start << ", after " << after.count() << " us: " << muster.err());
        CHECK(muster.wait() == 143);
        CHECK(holds(muster.err(), "SIGTERM"));
        CHECK(leaves_no_control_group(muster.pid()));
    }
}

TEST_CASE("the grace is kept, and a second signal cuts it short") {
    const std::string stubborn = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    MusterProcess patient(shell({"--shutdown-timeout=1"}, stubborn));
    REQUIRE(patient.wait_for("ready"));
    const auto started = std::chrono::steady_clock::now();
    patient.signal(SIGTERM);
    CHECK(patient.wait() == 143);
    CHECK(std::chrono::steady_clock::now() - started >= 900ms);

    MusterProcess hurried(shell({"--shutdown-timeout=60"}, stubborn));
    REQUIRE(hurried.wait_for("ready"));
    hurried.signal(SIGTERM);
    // Standard signals do not queue: the second may only be sent when the first has been acted upon.
    REQUIRE(hurried.wait_for("told"));
    hurried.signal(SIGTERM);
    CHECK(hurried.wait() == 143);  // within less than its grace
}

TEST_CASE("a stop while nodes are awaited ends at once") {
    MusterProcess muster(shell(
        {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:" + std::to_string(free_port())}, "exit 0"));
    REQUIRE(muster.wait_for("1 of 2 nodes"));
    muster.signal(SIGTERM);
    CHECK(muster.wait() == 143);
}

TEST_CASE("names with blanks are no trouble") {
    ScratchFolder folder;
    const auto directory = folder / "a b";
    std::filesystem::create_directory(directory);
    const auto script = directory + "/run it";
    std::ofstream(script) << "#!/bin/sh\necho \"$0|$1|$2\"\n";
    ::chmod(script.c_str(), 0755);
    MusterProcess muster({"--log-dir", directory + "/logs here", "-t3", script, "x y", ""}, {.directory = directory});
    CHECK(muster.wait() == 0);
    CHECK(muster.out() == "[default0]:" + script + "|x y|\n");
    CHECK(std::filesystem::exists(directory + "/logs here"));
    MusterProcess relative({"run it", "1"}, {.directory = directory});
    CHECK(relative.wait() == 0);
    CHECK(relative.out() == "./run it|1|\n");
}

TEST_CASE("it runs without standard streams, and with a stdout that nobody reads") {
    ScratchFolder folder;
    const auto mark = folder / "mark";
    MusterProcess closed(shell({}, "echo into-nothing; echo done > " + mark), {.close_streams = true});
    CHECK(closed.wait() == 0);
    CHECK(std::filesystem::exists(mark));
    MusterProcess unread(shell({"--nproc-per-node=2"}, "trap '' PIPE; echo lost; exit 0"),
                         {.close_stdout_reader = true});
    CHECK(unread.wait() == 0);
    MusterProcess unread_tee(shell({"-t1", "--log-dir", folder / "logs"}, "echo kept; exit 0"),
                             {.close_stdout_reader = true});
    CHECK(unread_tee.wait() == 0);
    MusterProcess help({"--help"}, {.close_stdout_reader = true});
    CHECK(help.wait() != -1);
}

TEST_CASE("two nodes on one host make one world, whichever of them hosts") {
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(free_port());
    const Words options{"--nnodes=2", "--rdzv-backend=c10d", endpoint, "--rdzv-id=two", "--nproc-per-node=2"};
    MusterProcess a(shell(options, "echo $RANK of $WORLD_SIZE at $MASTER_ADDR"));
    MusterProcess b(shell(options, "echo $RANK of $WORLD_SIZE at $MASTER_ADDR"));
    CHECK(a.wait() == 0);
    CHECK(b.wait() == 0);
    for (const char* line : {"0 of 4 at 127.0.0.1\n", "1 of 4 at ", "2 of 4 at ", "3 of 4 at "})
        CHECK(holds(a.out() + b.out(), line));
}

TEST_CASE("both nodes say whose failure ended the job, and end with its code") {
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(free_port());
    const Words options{"--nnodes=2", "--rdzv-backend=c10d", endpoint, "--rdzv-id=two"};
    MusterProcess a(shell(options, "test $RANK = 1 && exit 11; exec sleep 60"));
    MusterProcess b(shell(options, "test $RANK = 1 && exit 11; exec sleep 60"));
    CHECK(a.wait() == 11);
    CHECK(b.wait() == 11);
    CHECK(holds(a.err(), "rank 1"));
    CHECK(holds(b.err(), "rank 1"));
}

TEST_CASE("help and version go to stdout") {
    MusterProcess help({"--help"});
    CHECK(help.wait() == 0);
    CHECK(holds(help.out(), "--nproc-per-node"));
    MusterProcess version({"--version"});
    CHECK(version.wait() == 0);
    CHECK(version.out().starts_with("muster "));
}

TEST_CASE("an answer that stdout does not take is no success") {
    for (const std::string command : {"--help", "--version", "drain --help", "fault kill rank 0 --help",
                                      "flight --help", "checkpoint --help", "config check --help"}) {
        INFO(command);
        MusterProcess asker(shell({}, MUSTER_BINARY " " + command + " >/dev/full"));
        CHECK(asker.wait() == 70);
        CHECK(holds(asker.err(), "cannot write to stdout: No space left on device"));
    }
}

TEST_CASE("who has started the launcher finds in its error file what the worker said, with the exit code") {
    ScratchFolder folder;
    const MusterOptions asked{.environment = {{"TORCHELASTIC_ERROR_FILE", folder / "error.json"}}};
    const std::string says = R"(echo '{"message":{"message":"ValueError: bad"}}' >$TORCHELASTIC_ERROR_FILE; exit 3)";
    MusterProcess failed(shell({}, says), asked);
    CHECK(failed.wait() == 3);
    CHECK(read_file(folder / "error.json") == "{\"message\":{\"errorCode\":3,\"message\":\"ValueError: bad\"}}\n");
    MusterProcess mute(shell({"--rdzv-id=bert"}, "exit 4"), asked);
    CHECK(mute.wait() == 4);
    CHECK(holds(read_file(folder / "error.json"), "job bert failed"));
}

TEST_CASE("a temporary directory that is not there is no trouble, nor is a working directory that is gone") {
    MusterProcess elsewhere(shell({"--tee=1"}, "echo ${TORCHELASTIC_ERROR_FILE%/*/*/*/*}"),
                            {.environment = {{"TMPDIR", "/nonexistent"}}});
    CHECK(elsewhere.wait() == 0);
    const std::string prefix = "[default0]:";
    REQUIRE(elsewhere.out().starts_with(prefix + "/tmp/torchelastic_"));
    const auto logs = elsewhere.out().substr(prefix.size());
    std::filesystem::remove_all(logs.substr(0, logs.find('\n')));
    ScratchFolder folder;
    const auto here = folder / "here";
    // A shell removes the directory that it is in, and then becomes a second launcher there.
    const auto gone = [&](const std::string& options) {
        std::filesystem::create_directory(here);
        return shell(
            {}, "cd '" + here + "' && rmdir '" + here + "' && exec " MUSTER_BINARY " " + options + " --no-python true");
    };
    CHECK(code_of(gone("")) == 0);
    CHECK(code_of(gone("--report=r.json")) == 2);
    CHECK(code_of(gone("--checkpoint-dir=ckpt")) == 0);
    CHECK(code_of(gone("--log-dir=logs")) == 78);
}

TEST_CASE("a worker that changes its directory finds its error file, and its torch's timers") {
    ScratchFolder folder;
    const std::string elsewhere = "cd / && test -d \"${TORCHELASTIC_ERROR_FILE%/*}\"";
    MusterProcess muster(shell({"--log-dir=logs"}, elsewhere), {.directory = folder.string()});
    CHECK(muster.wait() == 0);
    std::filesystem::create_directory(folder / "tmp");
    MusterProcess temporary(
        shell({}, elsewhere + " && test -p \"$TORCHELASTIC_TIMER_FILE\""),
        {.environment = {{"TMPDIR", "tmp"}, {"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}}, .directory = folder.string()});
    CHECK(temporary.wait() == 0);
    CHECK(std::filesystem::is_empty(folder / "tmp"));
}

TEST_CASE("a worker's own stream passes through as it is; in muster's report its control bytes are escaped") {
    const ScratchFolder folder;
    MusterProcess muster(shell({"--report", folder / "r.json"}, R"(printf '\033[31mGr\374n\007\n' >&2; exit 3)"));
    CHECK(muster.wait() == 3);
    CHECK(muster.err().starts_with("\033[31mGr\xfcn\007\n"));
    CHECK(holds(muster.err(), "    \\x1b[31mGr\\xfcn\\x07\n"));
    CHECK(holds(muster.err(), "(\\xNN is a byte that is not UTF-8"));
    const auto report = muster.err().substr(muster.err().find("muster: "));
    CHECK(report.find_first_of("\033\007") == std::string::npos);
    const auto file = read_file(folder / "r.json");
    CHECK(muster::is_utf8(file));
    CHECK(file.find_first_of("\033\007") == std::string::npos);
}

TEST_CASE("a module that is not there ends the job with its cause and what to do") {
    MusterProcess muster({"--max-restarts=3", "-m", "no_such_module_anywhere"});
    CHECK(muster.wait() == 1);
    CHECK(holds(muster.err(), "this Python finds no module no_such_module_anywhere: correct the name after -m"));
}

TEST_CASE("workers that had to be killed after the grace are named at the end") {
    MusterProcess muster(
        shell({"--nproc-per-node=2", "--shutdown-timeout=5"},  // rank 0 may get no CPU for a while
              "test $RANK = 0 && exec sleep 60; trap '' TERM; echo deaf; while :; do sleep 0.1; done"));
    REQUIRE(muster.wait_for("deaf"));
    muster.signal(SIGTERM);
    CHECK(muster.wait() == 143);
    CHECK(holds(muster.err(), "this node has left; rank 1 had not ended 5 s after SIGTERM (--shutdown-timeout)"));
}

TEST_CASE("a variable that nothing reads is warned of, and the workers' own are not") {
    const Words inner{MUSTER_BINARY, "--preflight=off", "--no-python", "true"};
    Words words{"--nproc-per-node=2", "--preflight=off", "--no-python"};
    words.insert(words.end(), inner.begin(), inner.end());
    MusterProcess nested(words);
    CHECK(nested.wait() == 0);
    CHECK(without_standstills(nested.err()).empty());
    MusterProcess muster({"--no-python", "true"}, {.environment = {{"MUSTER_NNODE", "2"}}});
    CHECK(muster.wait() == 0);
    CHECK(holds(muster.err(), "MUSTER_NNODE is set, but muster has no such variable"));
    CHECK(holds(muster.err(), "the nearest known one is MUSTER_NNODES"));
}

TEST_CASE("a static port that another job has is refused with the advice to take another one") {
    const auto port = std::to_string(free_port());
    const Words place{"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + port};
    const auto job = [&](const std::string& id) {
        Words words = place;
        words.insert(words.end(), {"--rdzv-id=" + id, "--no-python", "true"});
        return words;
    };
    MusterProcess first(job("one"));
    REQUIRE(first.wait_for("1 of 2 nodes"));
    MusterProcess same(job("one"));
    CHECK(same.wait() == 78);
    CHECK(holds(same.err(), "or, if this is another job, its own port and --rdzv-id"));
    MusterProcess second(job("two"));
    CHECK(second.wait() == 78);
    CHECK(holds(second.err(), "it serves another job: choose another port for this one (--master-port"));
}
