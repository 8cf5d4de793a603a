// What a person gets who types something wrong: one sentence and an exit code, at once, and never a rendezvous before.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <thread>

#include "tests/integration/launcher/muster_process.h"
#include "tests/support/catch.h"
#include "tests/support/holds.h"
#include "tests/support/line_times.h"
#include "tests/support/scratch_folder.h"

using namespace muster::test;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

namespace {

/// An endpoint that swallows packets: who tried to join there would be seen to wait.
const std::string nowhere = "--rdzv-endpoint=192.0.2.1:29400";

struct Refusal {
    Words words;
    int code;
    std::string says;
    MusterOptions options = {};
};

/// Returns the sentence.
std::string check_refused(const Refusal& expected) {
    INFO("expecting " << expected.says);
    MusterProcess muster(expected.words, expected.options);
    CHECK(muster.wait() == expected.code);  // a rendezvous would go on for ten minutes
    CHECK(holds(muster.err(), expected.says));
    CHECK(std::count(muster.err().begin(), muster.err().end(), '\n') == 1);
    CHECK(std::regex_search(muster.err(), std::regex("^" + line_time_pattern + "muster: ")));
    CHECK(muster.out().empty());
    return muster.err();
}

/// A port of loopback that nobody serves: connections wait in the kernel.
class Listener {
  public:
    Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        socklen_t size = sizeof name;
        REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&name), size) == 0);
        REQUIRE(::listen(fd_, 8) == 0);
        REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size) == 0);
        port_ = ntohs(name.sin_port);
    }
    ~Listener() { ::close(fd_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    [[nodiscard]] int port() const { return port_; }
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_ = -1;
    int port_ = 0;
};

std::string make_file(const ScratchFolder& folder, const std::string& name, const std::string& content, mode_t mode) {
    std::ofstream(folder / name) << content;
    ::chmod((folder / name).c_str(), mode);
    return folder / name;
}

}  // namespace

TEST_CASE("a wrong option or variable is one line and exit code 2") {
    check_refused({{"--nproc-per-nod=2x", "x.py"}, 2, "--nproc-per-node: got '2x'"});
    check_refused({{"--nprocs=2", "x.py"}, 2, "the nearest known option is --nproc-per-node"});
    check_refused({{}, 2, "the program is missing"});
    check_refused({{"x.py"}, 2, "PET_NNODES: got 'two'", {.environment = {{"PET_NNODES", "two"}}}});
    check_refused({{"--rdzv-backend=etcd", "--nnodes=2", "x.py"}, 2, "names the members of etcd"});
    check_refused({{"--nnodes=2", "--rdzv-backend=c10d", "x.py"}, 2, "--rdzv-endpoint is missing"});
    check_refused({{"--exit-code=torchrun", "--nope", "x.py"}, 2, "--nope"});
    check_refused({{"--config=/no/such.conf", "x.py"},
                   2,
                   "--config: read /no/such.conf: No such file or directory; the path is misspelt, or"});
}

TEST_CASE("a loopback endpoint is refused when the scheduler says several hosts") {
    check_refused({{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", "--no-python", "true"},
                   2,
                   "Slurm reports 2 hosts",
                   {.environment = {{"SLURM_JOB_NUM_NODES", "2"}}}});
    check_refused({{"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", "--no-python", "true"},
                   2,
                   "write --nnodes and the name",
                   {.environment = {{"SLURM_NNODES", "2"}}}});
}

TEST_CASE("devices that do not suffice for --virtual-local-rank are a usage error") {
    check_refused({{"--nproc-per-node=3", "--virtual-local-rank", "--no-python", "true"},
                   2,
                   "CUDA_VISIBLE_DEVICES='0,1' has 2 devices",
                   {.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}}}});
}

TEST_CASE("too few descriptors for a run are one sentence, at once, however few there are") {
    const Words words{"--standalone", "--nproc-per-node=2", "--no-python", "true"};
    for (const unsigned files : {12U, 16U, 18U, 20U, 24U, 28U, 32U}) {
        INFO("limit " << files);
        const auto said = check_refused({words, 70, "Raise it on every node: run `", {.open_files_max = files}});
        std::smatch enough;
        REQUIRE(std::regex_search(said, enough, std::regex("`ulimit -n ([0-9]+)`")));
        MusterProcess raised(words, {.open_files_max = static_cast<unsigned>(std::stoul(enough[1]))});
        CHECK(raised.wait() == 0);
    }
}

TEST_CASE("more workers in the job than descriptors for their store are one sentence, before any worker starts") {
    const auto with = [](Words words, const char* says) {
        words.insert(words.end(), {"--nproc-per-node=8", "--no-python", "false"});
        check_refused({std::move(words), 70, says, {.open_files_max = 200}});
    };
    with({"--nnodes=20:30", "--rdzv-backend=c10d", nowhere},
         "need 340 connections (20 nodes with 8 workers each), but the limit of open files is 200 (RLIMIT_NOFILE, "
         "hard). Raise it on every node: run `ulimit -n 452` as root");
    check_refused({{"--nnodes=20:30", "--nproc-per-node=8", "--rdzv-backend=c10d", nowhere, "--no-python", "false"},
                   70,
                   "run `ulimit -n 452` as root",
                   {.open_files_max = 24}});
    with({"--nnodes=20", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=1"}, "LimitNOFILE=452");
    with({"--nnodes=200", "--store-relay", "--rdzv-backend=c10d", nowhere}, "need 415 connections");
    check_refused({{"--nnodes=2", "--store-relay", "--rdzv-backend=static", "--master-addr=h", "--no-python", "false"},
                   2,
                   "--store-relay needs a store that the agents serve, but --rdzv-backend is static"});
}

TEST_CASE("a program that cannot be started is refused before any rendezvous") {
    ScratchFolder folder;
    const Words join{"--nnodes=2", "--rdzv-backend=c10d", nowhere};
    const auto with = [&](Words more) {
        Words words = join;
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    check_refused(
        {with({"--no-python", make_file(folder, "lost", "#!/no/interpreter\n", 0755)}), 127, "/no/interpreter"});
    check_refused({with({folder / "none.py"}), 127, "No such file"});
    check_refused({{"drian", "node3"}, 127, "the nearest command is muster drain"});
    check_refused({{"--log-level=info", "drain", "node3"}, 127, "write muster drain before any option"});
    check_refused({with({"--no-python", "no-such-program"}), 127, "not in any directory of PATH"});
    check_refused({with({"--no-python", make_file(folder, "plain", "x", 0644)}), 126, "not executable"});
    check_refused({with({make_file(folder, "orphan", "#!/no/interpreter\n", 0755)}), 127, "/no/interpreter"});
    check_refused({with({make_file(folder, "t.py", "", 0644)}),
                   127,
                   "PYTHON_EXEC",
                   {.environment = {{"PYTHON_EXEC", "/no/python"}}}});
    check_refused({with({"--exit-code=torchrun", folder / "none.py"}), 1, "No such file"});
    check_refused({with({"--log-dir", folder / "plain", "--no-python", "true"}), 2, "--log-dir"});
    check_refused(
        {with({"--checkpoint-dir", folder / "plain/x/y", "--no-python", "true"}), 78, folder / "plain is not one"});
    check_refused({with({"--checkpoint-dir", folder / "plain", "--no-python", "true"}), 78, "--checkpoint-dir"});
    check_refused(
        {with({"--checkpoint-local-dir", folder / "plain/x", "--no-python", "true"}), 78, "--checkpoint-local-dir"});
}

TEST_CASE("a port that somebody else uses is refused, and the holder is named") {
    const Listener busy;
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(busy.port());
    for (const Words& more : {Words{}, Words{"--rdzv-conf=is_host=1"}}) {
        Words words{"--nnodes=2", "--rdzv-backend=c10d", endpoint};
        words.insert(words.end(), more.begin(), more.end());
        words.insert(words.end(), {"--no-python", "true"});
        MusterProcess muster(words);
        CHECK(muster.wait() == 78);
        CHECK(holds(muster.err(), "process " + std::to_string(::getpid())));
        CHECK(holds(muster.err(), "choose another port"));
    }
    MusterProcess muster({"--standalone", "--store-port=" + std::to_string(busy.port()), "--no-python", "true"});
    CHECK(muster.wait() == 78);
    CHECK(holds(muster.err(), "cannot listen on port " + std::to_string(busy.port())));
    CHECK(holds(muster.err(), "process " + std::to_string(::getpid())));
}

TEST_CASE("agents that disagree about the job are refused with both values") {
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(free_port());
    const Words common{"--nnodes=2", "--rdzv-backend=c10d", endpoint, "--rdzv-id=terms", "--rdzv-conf=join_timeout=60"};
    const auto with = [&](Words more) {
        Words words = common;
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    MusterProcess first(with({"--max-restarts=1", "--no-python", "true"}));
    REQUIRE(first.wait_for("1 of 2 nodes"));
    MusterProcess second(with({"--max-restarts=4", "--no-python", "true"}));
    CHECK(second.wait() == 78);
    CHECK(holds(second.err(), "max-restarts"));
    CHECK(holds(second.err(), "1"));
    CHECK(holds(second.err(), "4"));
    MusterProcess third(with({"--max-restarts=1", "--no-python", "true"}));
    CHECK(third.wait() == 0);
    CHECK(first.wait() == 0);
}

TEST_CASE("an endpoint that never answers: lines that say what is tried, then 75 at the join time-out") {
    const auto port = std::to_string(free_port());
    const auto started = std::chrono::steady_clock::now();
    MusterProcess muster({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + port,
                          "--rdzv-conf=is_host=0,join_timeout=5", "--no-python", "true"});  // the first line: after 1 s
    CHECK(muster.wait() == 75);
    CHECK(std::chrono::steady_clock::now() - started >= 5s);
    CHECK(holds(muster.err(), "127.0.0.1:" + port + " did not answer"));
    CHECK(holds(muster.err(), "Connection refused"));
    CHECK(std::count(muster.err().begin(), muster.err().end(), '\n') >= 2);
}

TEST_CASE("an endpoint that speaks another protocol: few lines, then 75 with a verdict that says so") {
    const Listener foreign;
    std::thread server([&foreign] {
        for (int caller = 0; (caller = ::accept(foreign.fd(), nullptr, nullptr)) >= 0; ::close(caller))
            if (::send(caller, "SSH-2.0-server\r\n", 16, MSG_NOSIGNAL) < 0) break;
    });
    const auto port = std::to_string(foreign.port());
    MusterProcess muster({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + port,
                          "--rdzv-conf=is_host=0,join_timeout=5", "--preflight=off", "--no-python", "true"});
    CHECK(muster.wait() == 75);
    ::shutdown(foreign.fd(), SHUT_RDWR);
    server.join();
    const auto said = without_standstills(muster.err());
    CHECK(std::count(said.begin(), said.end(), '\n') == 2);
    CHECK(holds(muster.err(),
                "no round within 5 s: 127.0.0.1:" + port + ": connected, but it does not speak muster's protocol"));
}
