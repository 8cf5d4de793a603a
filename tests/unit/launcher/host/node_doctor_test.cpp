#include "launcher/host/node_doctor.h"

#include <sys/wait.h>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

TEST_CASE("a look that has said all is reaped before the caller goes on") {
    // Of the looks only that at the firewall needs none of our programs.
    const DoctorOrder order{
        .directories = {}, .skip = {"names", "network", "system", "pci", "kernel-log", "disks", "gpus"}, .limits = {}};
    const auto facts = look_at_node(order, {});
    CHECK(facts.looks.contains("firewall"));
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}
