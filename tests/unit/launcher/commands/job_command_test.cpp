#include "launcher/commands/job_command.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "agent/channel/local_listener.h"
#include "agent/commands/command_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("a command ends also where the agent stands still and its queue is full") {
    const auto job = cat("job-command-test-", ::getpid());
    const auto address = agent::write_command_address({.user = ::geteuid(), .pid = ::getpid(), .job = job});
    const auto agent = agent::listen_locally(address, "commands");
    REQUIRE(agent.has_value());
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    std::vector<FileDescriptor> waiting;
    do waiting.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    while (waiting.size() < 100 &&
           ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
    REQUIRE(errno == EAGAIN);
    const auto began = std::chrono::steady_clock::now();
    CHECK(launcher::give_command(
              "drain", {.job = job, .endpoint = {}},
              {.number = 1, .verb = native::CommandVerb::drain_node, .node = "n", .why = "", .fault = {}}, {}) == 1);
    CHECK(std::chrono::steady_clock::now() - began < 8s);  // not the 10 s in which an agent that runs may answer
}
