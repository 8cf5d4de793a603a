#include "rendezvous/base/kernel/read_file.h"

#include "tests/support/catch.h"

namespace muster::test {

TEST_CASE("a file that cannot be read, or no longer, is empty") {
    CHECK(read_file("/nowhere").empty());
    CHECK(read_file("/proc/self/task").empty());  // opens, and each read of it fails
    CHECK(read_file("/proc/self/mem").empty());
    CHECK(read_file("/proc/self/comm").ends_with('\n'));
}

}  // namespace muster::test
