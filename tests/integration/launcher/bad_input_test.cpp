// What a person gets who types something wrong: one sentence and an exit code, at once, and never a rendezvous before.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/integration/launcher/muster_process.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster::test;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

namespace {

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// An endpoint that swallows packets: who tried to join there would be seen to wait.
const std::string nowhere = "--rdzv-endpoint=192.0.2.1:29400";

struct Refusal {
    Words words;
    int code;
    std::string says;
    MusterOptions options = {};
};

void check_refused(const Refusal& expected) {
    INFO("expecting " << expected.says);
    MusterProcess muster(expected.words, expected.options);
    const auto started = std::chrono::steady_clock::now();
    CHECK(muster.wait(5s) == expected.code);
    CHECK(std::chrono::steady_clock::now() - started < 2s);
    CHECK(holds(muster.err(), expected.says));
    CHECK(std::count(muster.err().begin(), muster.err().end(), '\n') == 1);
    CHECK(muster.err().starts_with("muster: "));
    CHECK(muster.out().empty());
}

std::string make_file(const ScratchFolder& folder, const std::string& name, const std::string& content, mode_t mode) {
    std::ofstream(folder / name) << content;
    ::chmod((folder / name).c_str(), mode);
    return folder / name;
}

}  // namespace

TEST_CASE("a wrong option or variable is one line and exit code 2") {
    check_refused({{"--nproc-per-nod=2x", "x.py"}, 2, "--nproc-per-node: got '2x'"});
    check_refused({{"--nope", "x.py"}, 2, "the nearest known option is --"});
    check_refused({{}, 2, "the program is missing"});
    check_refused({{"x.py"}, 2, "PET_NNODES: got 'two'", {.environment = {{"PET_NNODES", "two"}}}});
    check_refused({{"--rdzv-backend=etcd", "x.py"}, 2, "etcd is not supported yet"});
    check_refused({{"--nnodes=2", "--rdzv-backend=c10d", "x.py"}, 2, "--rdzv-endpoint is missing"});
    check_refused({{"--exit-code=torchrun", "--nope", "x.py"}, 2, "--nope"});
}

TEST_CASE("a loopback endpoint is refused when the scheduler says several hosts") {
    check_refused({{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", "--no-python", "true"},
                   2,
                   "Slurm says that there are 2 hosts",
                   {.environment = {{"SLURM_JOB_NUM_NODES", "2"}}}});
}

TEST_CASE("a program that cannot be started is refused before any rendezvous") {
    ScratchFolder folder;
    const Words join{"--nnodes=2", "--rdzv-backend=c10d", nowhere};
    const auto with = [&](Words more) {
        Words words = join;
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    check_refused({with({folder / "none.py"}), 127, "No such file"});
    check_refused({with({"--no-python", "no-such-program"}), 127, "not in any directory of PATH"});
    check_refused({with({"--no-python", make_file(folder, "plain", "x", 0644)}), 126, "not executable"});
    check_refused({with({make_file(folder, "orphan", "#!/no/interpreter\n", 0755)}), 127, "/no/interpreter"});
    check_refused({with({make_file(folder, "t.py", "", 0644)}),
                   127,
                   "PYTHON_EXEC",
                   {.environment = {{"PYTHON_EXEC", "/no/python"}}}});
    check_refused({with({"--exit-code=torchrun", folder / "none.py"}), 1, "No such file"});
    check_refused({with({"--log-dir", folder / "plain", "--no-python", "true"}), 2, "--log-dir"});
}

TEST_CASE("a port that somebody else uses is refused, and the holder is named") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    socklen_t size = sizeof name;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0);
    REQUIRE(::listen(fd, 8) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(ntohs(name.sin_port));
    for (const Words& more : {Words{}, Words{"--rdzv-conf=is_host=1"}}) {
        Words words{"--nnodes=2", "--rdzv-backend=c10d", endpoint};
        words.insert(words.end(), more.begin(), more.end());
        words.insert(words.end(), {"--no-python", "true"});
        MusterProcess muster(words);
        CHECK(muster.wait(5s) == 78);
        CHECK(holds(muster.err(), "process " + std::to_string(::getpid())));
        CHECK(holds(muster.err(), "choose another port"));
    }
    ::close(fd);
}

TEST_CASE("agents that disagree about the job are refused with both values") {
    const auto endpoint = "--rdzv-endpoint=localhost:" + std::to_string(free_port());
    const Words common{"--nnodes=2", "--rdzv-backend=c10d", endpoint, "--rdzv-id=terms", "--rdzv-conf=join_timeout=20"};
    const auto with = [&](Words more) {
        Words words = common;
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    MusterProcess first(with({"--max-restarts=1", "--no-python", "true"}));
    REQUIRE(first.wait_for("1 of 2 nodes"));
    MusterProcess second(with({"--max-restarts=4", "--no-python", "true"}));
    CHECK(second.wait(10s) == 78);
    CHECK(holds(second.err(), "max-restarts"));
    CHECK(holds(second.err(), "1"));
    CHECK(holds(second.err(), "4"));
    MusterProcess third(with({"--max-restarts=1", "--no-python", "true"}));
    CHECK(third.wait(10s) == 0);
    CHECK(first.wait(10s) == 0);
}

TEST_CASE("an endpoint that never answers: lines that say what is tried, then 75 at the join time-out") {
    const auto port = std::to_string(free_port());
    MusterProcess muster({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + port,
                          "--rdzv-conf=is_host=0,join_timeout=2", "--no-python", "true"});
    const auto started = std::chrono::steady_clock::now();
    CHECK(muster.wait(10s) == 75);
    const auto took = std::chrono::steady_clock::now() - started;
    CHECK(took >= 1900ms);
    CHECK(took < 4s);
    CHECK(holds(muster.err(), "127.0.0.1:" + port + " did not answer"));
    CHECK(holds(muster.err(), "Connection refused"));
    CHECK(std::count(muster.err().begin(), muster.err().end(), '\n') >= 2);
}
