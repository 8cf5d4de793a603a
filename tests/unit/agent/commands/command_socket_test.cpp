#include "agent/commands/command_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>

#include "agent/commands/command_address.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/support/catch.h"
#include "tests/support/other_user.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr uid_t nobody = 65534;

/// In the child: the exit code is what came of a command that `user` gave.
enum Outcome { answered = 0, hung_up = 1, not_connected = 2, no_such_user = 3 };

enum class WaitMode { waits, none };

/// Invalid: nobody listens.
FileDescriptor connect_to(const std::string& address) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) return {};
    return socket;
}

bool send_command(int socket) {
    std::string frame;
    native::append_frame(
        frame,
        native::Command{
            .number = 5, .verb = native::CommandVerb::drain_node, .node = "gpu01", .why = "maintenance", .fault = {}});
    return ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL) >= 0;
}

Outcome give_command(const std::string& address, uid_t user, WaitMode patience = WaitMode::waits) {
    if (user != ::getuid() && ::setresuid(user, user, user) != 0) return no_such_user;
    const auto socket = connect_to(address);
    if (!socket.valid()) return not_connected;
    // Refused before a byte of it was read: the write itself may fail then.
    if (!send_command(socket.get())) return hung_up;
    if (patience == WaitMode::none) return hung_up;
    char answer[1024];
    return ::recv(socket.get(), answer, sizeof answer, 0) > 0 ? answered : hung_up;
}

/// A child's answer to it, while the loop serves.
Outcome command_as(uid_t user, const std::string& address, boost::asio::io_context& loop) {
    const auto child = ::fork();
    if (child == 0) ::_exit(give_command(address, user));
    int status = 0;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (::waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > deadline) ::kill(child, SIGKILL);
        loop.restart();
        loop.run_one_for(10ms);
    }
    REQUIRE(WIFEXITED(status));
    return static_cast<Outcome>(WEXITSTATUS(status));
}

/// As a person's command finds them: in the kernel's list.
std::vector<CommandAddress> addresses_of(const std::string& job) {
    auto found = command_addresses(read_file("/proc/net/unix"));
    std::erase_if(found, [&](const auto& one) { return one.job != job || one.pid != ::getpid(); });
    return found;
}

}  // namespace

TEST_CASE("no process can bind the name of an agent's socket before the agent does: it differs each time") {
    boost::asio::io_context loop;
    const std::string job = "command-name-test-" + std::to_string(::getpid());
    const auto first = CommandSocket::open(loop, job, [](const native::Command&) {});
    const auto second = CommandSocket::open(loop, job, [](const native::Command&) {});
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    CHECK(addresses_of(job).size() == 2);
}

TEST_CASE("the agent's socket takes commands of its own user who waits for them; another user's are refused unread") {
    boost::asio::io_context loop;
    std::vector<native::Command> heard;
    ClosingPtr<CommandSocket> commands;
    const std::string job = "command-socket-test-" + std::to_string(::getpid());
    auto opened = CommandSocket::open(loop, job, [&](native::Command command) {
        heard.push_back(command);
        commands->answer({command.number, true, "done"});
    });
    REQUIRE(opened.has_value());
    commands = std::move(opened.value());
    REQUIRE(addresses_of(job).size() == 1);
    const auto address = write_command_address(addresses_of(job).front());
    CHECK(command_as(::getuid(), address, loop) == answered);
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].node == "gpu01");
    // Its giver has gone before the agent, which stood still, comes to it.
    CHECK(give_command(address, ::getuid(), WaitMode::none) == hung_up);
    CHECK(command_as(::getuid(), address, loop) == answered);
    CHECK(heard.size() == 2);
    if (!test::may_be_another_user()) return;
    CHECK(command_as(nobody, address, loop) == hung_up);
    CHECK(heard.size() == 2);
    CHECK(command_as(::getuid(), address, loop) == answered);
}

TEST_CASE("a command that comes while there is no descriptor is taken later, and the loop rests meanwhile") {
    boost::asio::io_context loop;
    const std::string job = "command-later-test-" + std::to_string(::getpid());
    int heard = 0;
    const auto commands = CommandSocket::open(loop, job, [&](const native::Command&) { ++heard; });
    REQUIRE(commands.has_value());
    REQUIRE(addresses_of(job).size() == 1);
    const auto giver = connect_to(write_command_address(addresses_of(job).front()));
    REQUIRE(giver.valid());
    REQUIRE(send_command(giver.get()));
    const int highest = ::dup(0);
    ::close(highest);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(highest);
    ::setrlimit(RLIMIT_NOFILE, &tight);
    const auto handled = loop.run_for(300ms);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(handled < 20);
    CHECK(heard == 0);
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (heard == 0 && std::chrono::steady_clock::now() < deadline) loop.run_one_until(deadline);
    CHECK(heard == 1);
}

TEST_CASE("the handler of a command may close the socket: the command's giver hears the end") {
    boost::asio::io_context loop;
    ClosingPtr<CommandSocket> commands;
    const std::string job = "command-closes-test-" + std::to_string(::getpid());
    auto opened = CommandSocket::open(loop, job, [&](const native::Command&) { commands.reset(); });
    REQUIRE(opened.has_value());
    commands = std::move(opened.value());
    REQUIRE(addresses_of(job).size() == 1);
    const auto address = write_command_address(addresses_of(job).front());
    CHECK(command_as(::getuid(), address, loop) == hung_up);
    CHECK(commands == nullptr);
}
