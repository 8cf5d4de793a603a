#include "agent/commands/command_address.h"

#include <csignal>

#include "agent/process/signal_handlers.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

TEST_CASE("an agent's address is found again among the sockets of its host, whatever its job is called") {
    const CommandAddress plain{1000, 4711, "0123456789abcdef", "train-7"};
    CHECK(write_command_address(plain) == "muster/agent/1000/4711/0123456789abcdef/train-7");
    const CommandAddress odd{0, 1, "fedcba9876543210", "a job/with\nall % of\xc3\xa9 it"};
    const auto text =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0005 01 1 @" +
        write_command_address(plain) +
        "\n"
        "0000000000000000: 00000003 00000000 00000000 0005 03 2 @" +
        write_command_address(plain) +
        "\n"
        "0000000000000000: 00000002 00000000 00010000 0005 01 3 @" +
        write_command_address(odd) +
        "\n"
        "0000000000000000: 00000002 00000000 00010000 0005 01 4 @muster/123/45/6\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 5 /run/muster/agent/1/2/x\n";
    CHECK(command_addresses(text) == std::vector<CommandAddress>{plain, odd});
}

TEST_CASE("a job's name that is too long for an address is cut, and still told from others") {
    const std::string uuid = "123e4567-e89b-42d3-a456-426614174000";
    CHECK(job_in_address(uuid) == uuid);
    const std::string one(200, 'a');
    const auto other = one + "b";
    CHECK(job_in_address(one) != job_in_address(other));
    for (const auto& job : {one, std::string(255, '\n')})
        CHECK(write_command_address({4294967295u, 4194304, fresh_token(), job}).size() <= 106);
}

TEST_CASE("damaged addresses are nobody's") {
    for (const auto* address : {"muster/agent/", "muster/agent/1/2", "muster/agent/1/2/j",
                                "muster/agent/x/2/0123456789abcdef/j", "muster/agent/1/2/0123456789abcde/j",
                                "muster/agent/1/2/0123456789ABCDEF/j", "muster/agent/1/2/0123456789abcdef/%4",
                                "muster/agent/1/2/0123456789abcdef/%zz", "muster/agent/1/2/0123456789abcdef/%2F",
                                "muster/agent/1/2/0123456789abcdef/%6a", "muster/agent/1/2/0123456789abcdef/j/k"})
        CHECK(command_addresses(std::string("0: 1 2 @") + address).empty());
}

TEST_CASE("workers start to ignore a scheduler's notice, but no signal that means something else to them") {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGXCPU}) CHECK(ignored_by_workers(signal) == signal);
    for (const int signal : {0, SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGKILL}) CHECK(ignored_by_workers(signal) == 0);
}

TEST_CASE("a handled signal is seen in the status of a process") {
    const std::string status = "Name:\tpython3\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180004202\n";
    CHECK(status_handles_signal(status, 2));
    CHECK(status_handles_signal(status, 10));
    CHECK_FALSE(status_handles_signal(status, 12));
    CHECK_FALSE(status_handles_signal(status, 13));  // ignored is not handled
    CHECK_FALSE(status_handles_signal("", 10));
    CHECK_FALSE(status_handles_signal("SigCgt:\tnonsense\n", 10));
}
