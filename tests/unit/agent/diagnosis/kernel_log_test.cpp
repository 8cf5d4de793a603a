#include "agent/diagnosis/kernel_log.h"

#include "tests/support/catch.h"

using namespace muster::agent;

namespace {

template <class Event>
Event parsed(std::string_view line) {
    const auto event = parse_kernel_line(line);
    REQUIRE(event.has_value());
    REQUIRE(std::holds_alternative<Event>(*event));
    return std::get<Event>(*event);
}

}  // namespace

TEST_CASE("the kernel's lines about an out-of-memory kill name the process and whose limit it was") {
    const auto host = parsed<OomKill>(
        "3,2210,99812345,-;Out of memory: Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB, "
        "file-rss:4kB, shmem-rss:0kB, UID:1000 pgtables:16540kB oom_score_adj:0\n SUBSYSTEM=memory\n");
    CHECK(host.pid == 4242);
    CHECK(host.program == "python3");
    CHECK(host.resident_kib == 8388608);
    CHECK_FALSE(host.in_group);
    const auto group = parsed<OomKill>(
        "3,2211,99812346,-;Memory cgroup out of memory: Killed process 17 (my (odd) name) total-vm:1kB, anon-rss:1kB");
    CHECK(group.pid == 17);
    CHECK(group.in_group);
    // Before Linux 5.1.
    CHECK(parsed<OomKill>("Memory cgroup out of memory: Kill process 9 (a) score 12 or sacrifice child").pid == 9);
}

TEST_CASE("an Xid names its number, its device and, where the driver knows it, the process") {
    const auto fault = parsed<GpuError>(
        "4,91,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python3, Ch 00000008, intr 10000000. MMU Fault: "
        "ENGINE GRAPHICS");
    CHECK(fault.xid == 31);
    CHECK(fault.pid == 4242);
    CHECK(fault.device == "PCI:0000:3b:00");
    const auto unknown = parsed<GpuError>(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has "
        "fallen off the bus.");
    CHECK(unknown.xid == 79);
    CHECK(unknown.pid == 0);
}

TEST_CASE("a segmentation fault's line says where") {
    const auto fault = parsed<MemoryFault>(
        "6,1,2,-;python3[4242]: segfault at 10 ip 00007f0000001234 sp 00007ffd00000000 error 4 in "
        "libtorch_cpu.so[7f0000000000+8000000] likely on CPU 3 (core 3, socket 0)");
    CHECK(fault.pid == 4242);
    CHECK(fault.address == 0x10);
    CHECK(fault.where == "libtorch_cpu.so");
    const auto bracketed = parsed<MemoryFault>("pt[main]x[77]: segfault at 0 ip 0 sp 0 error 6");
    CHECK(bracketed.pid == 77);
    CHECK(bracketed.where.empty());
    const auto trap = parsed<MemoryFault>(
        "traps: python3[5] general protection fault ip:7f12 sp:7ffc error:0 in libfoo.so[7f00+1000]");
    CHECK(trap.pid == 5);
    CHECK_FALSE(trap.address.has_value());
    CHECK(trap.where == "libfoo.so");
}

TEST_CASE("a failed memory module's line names the process that lost its page") {
    CHECK(parsed<HardwareMemoryError>(
              "Memory failure: 0x1234: Sending SIGBUS to python3:4242 due to hardware memory corruption")
              .pid == 4242);
}

TEST_CASE("lines about other things, and broken ones, are nothing") {
    for (const auto* line : {"", ";", "6,1,2,-;", "6,1,2,-;eth0: link up", "Killed process ", "Killed process x (y)",
                             "NVRM: Xid (", "NVRM: Xid (PCI:0): ", "x]: segfault at ", "[12x]: segfault at 0",
                             "traps: python3[5] trap", "hardware memory corruption",
                             "SIGBUS to a:b due to hardware memory "
                             "corruption"})
        CHECK_FALSE(parse_kernel_line(line).has_value());
}
