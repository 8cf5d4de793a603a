#include "launcher/host/program_output.h"

#include <signal.h>
#include <sys/wait.h>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("a program that has said all, and one that nobody waits for any more, is killed and reaped") {
    const std::vector<std::string> words{"/bin/sh", "-c", "echo $$; exec >&-; exec sleep 600"};
    const auto said = program_output(words, 60s, [] { return false; });
    REQUIRE(said.has_value());
    pid_t pid = 0;
    REQUIRE(parse_number(trim(*said), pid));
    CHECK(::kill(pid, 0) != 0);
    CHECK_FALSE(program_output({"sleep", "600"}, 60s, [] { return true; }).has_value());
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}
