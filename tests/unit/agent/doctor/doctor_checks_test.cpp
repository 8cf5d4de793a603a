#include <algorithm>
#include <set>

#include "agent/doctor/doctor_report.h"
#include "tests/support/catch.h"
#include "tests/unit/agent/doctor/clean_node.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

std::vector<Finding> grave(const DoctorFacts& facts, const DoctorLimits& limits = {}) {
    auto findings = examine(facts, limits, {});
    std::erase_if(findings, [](const Finding& one) { return one.level == Level::info; });
    return findings;
}

/// Replaces the record of the look that begins with the same two words, or adds it.
void plant(DoctorFacts& facts, const std::string& look, std::string_view record) {
    const auto planted = fact(record);
    auto& records = facts.looks[look].records;
    const auto words = split(record, ' ');
    for (auto& one : records) {
        if (one.name != planted.name) continue;
        const auto key = words.size() > 1 ? words[1].substr(0, words[1].find('=')) : std::string_view();
        const bool is_named = key == "name" || key == "type" || key == "way" || key == "device" || key == "address" ||
                              key == "index" || key == "path";
        if (is_named && one.text(key) != planted.text(key)) continue;
        for (const auto& [field, value] : planted.fields) one.fields[field] = value;
        return;
    }
    records.push_back(planted);
}

struct Fault {
    const char* check;
    Level level;
    const char* look;
    const char* record;
    const char* measured;
};

constexpr Fault faults[] = {
    {"lookup-time", Level::warning, "names", "name ms=1700", "took 1700 ms"},
    {"own-name", Level::warning, "names", "name failure=Name~or~service~not~known",
     "does not resolve: Name or service not known"},
    {"interface-speed", Level::warning, "network", "interface name=eth0 speed=100", "100 Mbit/s, full duplex"},
    {"interface-speed", Level::warning, "network", "interface name=eth0 duplex=half", "25000 Mbit/s, half duplex"},
    {"interface-mtu", Level::warning, "network", "interface name=eth0 mtu=1300", "MTU 1300"},
    {"interface-errors", Level::warning, "network", "interface name=eth0 errors=901", "901 errors in 9000000 packets"},
    {"bond-members", Level::warning, "network", "bond-member state=down", "down"},
    {"conntrack-table", Level::warning, "network", "conntrack count=220000", "220000 of 262144"},
    {"tcp-abort-on-overflow", Level::warning, "network", "tcp abort-on-overflow=1", "1"},
    {"listen-backlog", Level::warning, "network", "tcp somaxconn=128", "128"},
    {"port-range", Level::warning, "network", "ports first=1024", "1024 to 60999"},
    {"firewall", Level::warning, "firewall", "-P~INPUT~DROP",
     "accepts no new connection on the ports of ranks, 32768 to 60999"},
    {"open-files", Level::warning, "system", "open-files soft=256", "256 (soft), 1048576 (hard)"},
    {"open-files", Level::warning, "system", "open-files hard=1015", "1024 (soft), 1015 (hard)"},
    {"locked-memory", Level::warning, "system", "locked-memory soft=8388608", "8388608 bytes"},
    {"process-limit", Level::warning, "system", "processes free=100", "100 (pids.max)"},
    {"memory-limit", Level::warning, "system", "memory-limit bytes=8589934591", "8191 MiB"},
    {"shared-memory", Level::warning, "system", "shm bytes=67108864", "64 MiB (Docker's default)"},
    {"ptrace-scope", Level::warning, "system", "ptrace-scope value=3", "3"},
    {"rdma-port", Level::critical, "pci", "rdma-port device=mlx5_0 state=DOWN phys=Polling",
     "DOWN, Polling; lost its link 1 times"},
    {"rdma-port", Level::warning, "pci", "rdma-port device=mlx5_0 state=INIT", "INIT, link up"},
    {"rdma-write", Level::warning, "rdma-write", "written device=mlx5_0 gbits=98.02",
     "98 Gbit/s in RDMA writes of the port to itself"},
    {"rdma-write", Level::warning, "rdma-write", "written device=mlx5_0 gbits= text=Failed~to~create~CQ",
     "ib_write_bw failed: Failed to create CQ"},
    {"rdma-write", Level::warning, "rdma-write", "written device=mlx5_0 downs=2",
     "lost its link 2 times during the writes"},
    {"pci-link", Level::warning, "pci", "device address=0000:e0:00.0 width=8", "x8"},
    {"pci-acs", Level::warning, "pci", "acs address=0000:d0:01.0", "ACS redirects requests"},
    {"iommu", Level::warning, "pci", "device address=0000:e0:00.0 iommu=DMA-FQ", "IOMMU translates (DMA-FQ)"},
    {"gpu-xid", Level::warning, "kernel-log", "line text=6,1,2,-;NVRM:~Xid~(PCI:0000:e1:00):~79,~GPU~has~fallen",
     "in the kernel log since the boot"},
    {"gpu-xid", Level::warning, "kernel-log", "line text=6,1,2,-;NVRM:~Xid~(PCI:0000:e1:00):~48,~x",
     "in the kernel log since the boot"},
    {"gpu-driver", Level::critical, "gpus", "failure text=nvmlInit:~Driver~Not~Loaded", "nvmlInit: Driver Not Loaded"},
    {"gpu-lost", Level::critical, "gpus", "lost index=7 text=GPU~is~lost", "GPU is lost"},
    {"gpu-recovery", Level::critical, "gpus", "gpu index=1 recovery=1", "the driver asks: reset the GPU"},
    {"gpu-remapped-rows", Level::critical, "gpus", "gpu index=1 rows-pending=1", "the replacement of a row is pending"},
    {"gpu-remapped-rows", Level::critical, "gpus", "gpu index=1 rows-failed=1",
     "a row of its memory could not be replaced"},
    {"gpu-ecc", Level::critical, "gpus", "gpu index=0 ecc-uncorrected=1", "1 uncorrected memory errors"},
    {"gpu-ecc", Level::warning, "gpus", "gpu index=0 sram-corrected=10001", "10001 corrected errors of its SRAM"},
    {"gpu-throttle", Level::warning, "gpus", "gpu index=0 hw-thermal=6",
     "clocks slowed: too hot (hardware), 6 of 10 samples"},
    {"gpu-nvlink", Level::warning, "gpus", "gpu index=0 nvlinks=17", "17 active NVLinks"},
    {"gpu-fabric", Level::critical, "gpus", "gpu index=0 fabric=2", "still registers with the fabric"},
    {"gpu-fabric", Level::critical, "gpus", "gpu index=0 fabric-health=169", "the fabric's bandwidth is degraded"},
    {"gpu-in-use", Level::unknown, "gpu-test GPU 1 (GPU-b)", "busy by=process~42~(python3)",
     "in use by process 42 (python3)"},
    {"gpu-test-failed", Level::critical, "gpu-test GPU 1 (GPU-b)", "failure kind=gpu text=unspecified~launch~failure",
     "unspecified launch failure, in the start of CUDA"},
    {"gpu-test-failed", Level::critical, "gpu-test GPU 1 (GPU-b)", "failure kind=program text=signal~11",
     "signal 11, in the start of CUDA"},
    {"gpu-test-failed", Level::unknown, "gpu-test GPU 1 (GPU-b)", "failure kind=memory text=out~of~memory",
     "out of memory, in the start of CUDA"},
    {"gpu-test-failed", Level::unknown, "gpu-test GPU 1 (GPU-b)", "failure kind=library text=no~CUDA",
     "no CUDA, in the start of CUDA"},
    {"gpu-checksum", Level::critical, "gpu-test GPU 1 (GPU-b)", "product type=f16 wrong=3",
     "3 of 400 products of matrices in f16 are wrong"},
    {"gpu-memory", Level::critical, "gpu-test GPU 1 (GPU-b)", "memory wrong=2",
     "2 words of 1024 MiB read as others than were written"},
    {"gpu-copies", Level::critical, "gpu-test GPU 1 (GPU-b)", "copied wrong=1", "1 words differ after copies"},
    {"gpu-slower", Level::warning, "gpu-test GPU 1 (GPU-b)", "product type=f16 gflops=212499",
     "212499 GFLOP/s in products in f16"},
    {"gpu-slower", Level::warning, "gpu-test GPU 1 (GPU-b)", "copy way=from~the~GPU mbytes-per-s=45000",
     "45000 MB/s in copies from the GPU"},
    {"gpu-between", Level::critical, "gpu-between", "between wrong=3", "3 words of 32 MiB differ after a copy"},
    {"gpu-between", Level::critical, "gpu-between", "failure kind=gpu text=illegal~address", "illegal address"},
    {"gpu-between", Level::unknown, "gpu-between", "failure kind=library text=no~CUDA", "no CUDA"},
    {"gpu-all-reduce", Level::critical, "gpu-reduce", "reduced wrong=7", "7 wrong sums"},
    {"gpu-all-reduce", Level::critical, "gpu-reduce", "failure kind=gpu text=unhandled~cuda~error",
     "unhandled cuda error"},
    {"gpu-all-reduce", Level::unknown, "gpu-reduce", "failure kind=library text=no~NCCL", "no NCCL"},
    {"gpu-dcgm", Level::critical, "dcgm", "|~Permissions~|~Fail~|", "Fail"},
    {"gpu-dcgm", Level::warning, "dcgm", "|~Page~Retirement~|~Warn~-~GPU~0~|", "Warn - GPU 0"},
    {"gpu-under-load", Level::warning, "gpu-test GPU 1 (GPU-b)", "load sw-thermal=12",
     "clocks slowed under load: too hot (driver), 12 of 40 samples"},
    {"gpu-under-load", Level::critical, "gpu-test GPU 1 (GPU-b)", "after ecc-uncorrected=2",
     "memory errors during the test: ecc-uncorrected grew by 2"},
    {"disk-space", Level::critical, "disks /tmp", "disk path=/tmp free=4096 failure=No~space~left~on~device",
     "0 MiB free"},
    {"disk-space", Level::critical, "disks /tmp", "disk path=/tmp free-inodes=0", "no free inodes"},
    {"disk-space", Level::warning, "disks /tmp", "disk path=/tmp free=99999999", "95 MiB free"},
    {"disk-write", Level::warning, "disks /tmp", "disk path=/tmp ms=1400", "wrote and synced 1 MiB in 1400 ms"},
    {"disk-write", Level::critical, "disks /tmp", "disk path=/tmp failure=Read-only~file~system",
     "cannot be written: Read-only file system"},
};

struct WrongSetting {
    const char* check;
    const char* variable;
    const char* value;
    const char* measured;
};

constexpr WrongSetting wrong_settings[] = {
    {"socket-interface", "NCCL_SOCKET_IFNAME", "ens5", "no interface begins with 'ens5'"},
    {"socket-interface", "NCCL_SOCKET_IFNAME", "=eth", "no interface is named 'eth'"},
    {"socket-interface", "GLOO_SOCKET_IFNAME", "eth", "no interface is named 'eth'"},
    {"rdma-device", "NCCL_IB_HCA", "mlx4", "no RDMA device matches 'mlx4'"},
    {"rdma-disabled", "NCCL_IB_DISABLE", "1", "the RDMA port mlx5_0 is active"},
    {"slow-setting", "NCCL_P2P_DISABLE", "1", "GPUs of this node do not copy directly"},
    {"slow-setting", "NCCL_DEBUG", "TRACE", "every call of NCCL is logged"},
    {"old-setting", "NCCL_ASYNC_ERROR_HANDLING", "1", "obsolete"},
    {"omp-threads", "OMP_NUM_THREADS", "97", "this process may use 96 CPUs"},
};

}  // namespace

TEST_CASE("a clean node has no finding of level warning or above") {
    for (const auto& one : grave(clean_node())) CHECK(one.check == "none");
}

TEST_CASE("each fault is found by its own check and by no other") {
    for (const auto& fault : faults) {
        auto facts = clean_node();
        plant(facts, fault.look, fault.record);
        const auto findings = grave(facts);
        INFO(fault.check << ": " << fault.record);
        REQUIRE(findings.size() == 1);
        CHECK(findings[0].check == fault.check);
        CHECK(findings[0].level == fault.level);
        CHECK(findings[0].measured == fault.measured);
        CHECK(!findings[0].expected.empty());
        CHECK(!findings[0].why.empty());
        CHECK(!findings[0].mend.empty());
    }
}

TEST_CASE("each wrong setting is found by its own check and by no other") {
    for (const auto& setting : wrong_settings) {
        auto facts = clean_node();
        facts.environment[setting.variable] = setting.value;
        const auto findings = grave(facts);
        INFO(setting.variable << "=" << setting.value);
        REQUIRE(findings.size() == 1);
        CHECK(findings[0].check == setting.check);
        CHECK(findings[0].level == Level::warning);
        CHECK(findings[0].measured == setting.measured);
    }
}

TEST_CASE("every check has a fault in this file") {
    std::set<std::string_view> tested{
        "own-name",        "name-route",     "core-limit",     "versions",  "gpudirect",     "gpu-count",
        "unknown-setting", "node-links",     "node-undecided", "node-path", "nodes-missing", "links",
        "roce-mtu",        "node-clock",     "gpu-copies",     "gpu-speed", "nodes-apart",   "node-build",
        "rdma-gid",        "nodes-together", "node-network",   "node-mtu"};  // below, or without a level above info
    for (const auto& fault : faults) tested.insert(fault.check);
    for (const auto& setting : wrong_settings) tested.insert(setting.check);
    for (const auto& check : check_table()) CHECK(tested.contains(check.name));
}

TEST_CASE("the memory limit is judged by the GPUs of this job, not by those of the node") {
    auto facts = clean_node();
    plant(facts, "system", "memory-limit bytes=8589934591");
    CHECK(grave(facts).at(0).expected == "at least 8192 MiB, 4096 MiB for each of 2 GPUs of this job");
    for (const char* visible : {"0", " GPU-b", "1,-1", "0,", "", "-1", "none"}) {
        facts.environment["CUDA_VISIBLE_DEVICES"] = visible;
        INFO(visible);
        CHECK(grave(facts).empty());
    }
    // An eighth of a node's memory, beside one GPU of eight, is a usual job.
    plant(facts, "system", "memory-limit bytes=4294967295");
    facts.environment["CUDA_VISIBLE_DEVICES"] = "1";
    CHECK(grave(facts).at(0).expected == "at least 4096 MiB, 4096 MiB for each of 1 GPU of this job");
}

TEST_CASE("of eight GPUs the one that spoils copies is named once, by index and bus, and single pairs by both") {
    auto facts = clean_node();
    auto &gpus = facts.looks["gpus"].records, &pairs = facts.looks["gpu-between"].records;
    gpus.clear();
    pairs.clear();
    const auto uuid = [](int gpu) { return cat("GPU-", gpu); };
    for (int from = 0; from < 8; ++from) {
        gpus.push_back({"gpu", {{"index", cat(from)}, {"uuid", uuid(from)}, {"bus", cat("0000:e", from, ":00.0")}}});
        for (int to = 0; to < 8; ++to) {
            const bool is_wrong = from == 3 || (from == 6 && to == 1);
            if (from != to)
                pairs.push_back({"between",
                                 {{"from", uuid(from)},
                                  {"to", uuid(to)},
                                  {"wrong", is_wrong ? "2" : "0"},
                                  {"mib", "32"},
                                  {"direct", "1"},
                                  {"mbytes-per-s", cat(1000 + from * 10 + to)}}});
        }
    }
    const auto findings = grave(facts);
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].what == "GPU 3 (0000:e3:00.0, GPU-3)");
    CHECK(findings[0].measured == "words differ after copies with 7 of 7 other GPUs");
    CHECK(findings[1].what == "GPU 6 (0000:e6:00.0, GPU-6) to GPU 1 (0000:e1:00.0, GPU-1)");
    CHECK(findings[1].measured == "2 words of 32 MiB differ after a copy");
    for (const auto& one : examine(facts, {}, {}))
        if (one.check == "gpu-between" && one.level == Level::info)
            CHECK(one.measured ==
                  "1001 to 1076 MB/s; the slowest from GPU 0 (0000:e0:00.0, GPU-0) to GPU 1 (0000:e1:00.0, GPU-1); 56 "
                  "of 56 "
                  "without the host");
}

TEST_CASE("copies slower than the link or the memory promises are found, on all GPUs of a node alike") {
    auto facts = clean_node();
    for (const char* test : {"gpu-test GPU 0 (GPU-a)", "gpu-test GPU 1 (GPU-b)"}) {
        plant(facts, test, "copy way=to~the~GPU mbytes-per-s=37000");
        plant(facts, test, "copy way=within~the~GPU mbytes-per-s=1400000");
    }
    const auto findings = grave(facts);
    REQUIRE(findings.size() == 4);
    CHECK(findings[0].check == "gpu-copies");
    CHECK(findings[0].expected == "at least 37804 MB/s, 60 % of 63008");
    CHECK(findings[1].measured == "1400000 MB/s in copies within the GPU");
    DoctorLimits limits;
    limits.set("gpu-copy-percent", 50);
    CHECK(grave(facts, limits).empty());
}

TEST_CASE("the speed of a GPU is information, and a limit of the machine type makes it a warning") {
    const auto facts = clean_node();
    const auto speeds = [&](const DoctorLimits& limits) {
        auto found = examine(facts, limits, {});
        std::erase_if(found, [](const Finding& one) { return one.check != "gpu-speed"; });
        return found;
    };
    REQUIRE(speeds({}).size() == 2);
    CHECK(speeds({})[0].level == Level::info);
    CHECK(speeds({})[0].measured ==
          "250000 GFLOP/s in products in f16; 40000 GFLOP/s in products in f32; 55000 MB/s in copies to the GPU; 54000 "
          "MB/s in copies from the GPU; 2000000 MB/s in copies within the GPU; 1980 MHz, 52 degrees, 500 W");
    DoctorLimits limits;
    limits.set("gpu-gflops", 300'000);
    CHECK(speeds(limits)[0].level == Level::warning);
}

TEST_CASE("an installed dcgmi that cannot run is information") {
    auto facts = clean_node();
    facts.looks["dcgm"] = look_of({"Error:~unable~to~connect~to~localhost"});
    CHECK(grave(facts).empty());
    const auto all = examine(facts, {}, {});
    CHECK(std::ranges::any_of(all, [](const Finding& one) { return one.check == "gpu-dcgm"; }));
}

TEST_CASE("a GPU and an RDMA port without a driver that brings them together are information") {
    auto facts = clean_node();
    const auto measured = [&] {
        for (const auto& one : examine(facts, {}, {}))
            if (one.check == "gpudirect") return one.measured;
        return std::string();
    };
    CHECK(measured().empty());
    plant(facts, "pci", "gpu-module peermem=0 open=0");
    CHECK(measured() == "neither nvidia_peermem nor the open driver");
    CHECK(grave(facts).empty());
    plant(facts, "pci", "gpu-module peermem=1 open=0");
    CHECK(measured().empty());
    // Nothing to bring together.
    plant(facts, "pci", "gpu-module peermem=0 open=0");
    std::erase_if(facts.looks["pci"].records, [](const auto& one) { return one.name == "rdma-port"; });
    CHECK(measured().empty());
}

TEST_CASE("a warning that NCCL prints while it tests its own paths is information") {
    auto facts = clean_node();
    constexpr std::string_view warning = "gpu07:7:9 [0] transport/p2p.cc:42 NCCL WARN P2P check failed";
    facts.looks["gpu-reduce"] = parse_look(cat("gpu07:7:9 NCCL version 2.31.1\n", warning,
                                               "\nreduced\tgpus=2\tmib=64\twrong=0\tmbytes-per-s=360000\nend\n"),
                                           "no answer within 60 s");
    CHECK(grave(facts).empty());
    std::vector<std::string> measured;
    for (const auto& one : examine(facts, {}, {}))
        if (one.check == "gpu-all-reduce" && one.expected == "no warning of NCCL") measured.push_back(one.measured);
    CHECK(measured == std::vector<std::string>{std::string(warning)});
}

TEST_CASE("GPUs of other models are not compared") {
    auto facts = clean_node();
    facts.looks["gpu-test GPU 1 (GPU-b)"].records[0].fields["name"] = "NVIDIA L4";
    plant(facts, "gpu-test GPU 1 (GPU-b)", "product type=f16 gflops=90000");
    CHECK(grave(facts).empty());
}

TEST_CASE("a test that hangs names its step") {
    const auto look = parse_look("target\tuuid=GPU-a\nstep\tname=copies to the GPU\n", "no answer within 60 s");
    CHECK(look.state == Look::State::cut);
    CHECK(look.why == "no answer within 60 s, in copies to the GPU");
}

TEST_CASE("a name that is loopback alone is found only where the host has another address") {
    auto facts = clean_node();
    auto& names = facts.looks["names"];
    std::erase_if(names.records, [](const auto& one) { return one.text("loopback") == "0"; });
    const auto findings = grave(facts);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "own-name");
    CHECK(findings[0].measured == "resolves to 127.0.1.1");
    CHECK(findings[0].mend == "write '10.0.0.7 gpu07' into /etc/hosts in place of the line with 127.0.1.1");
    std::erase_if(names.records, [](const auto& one) { return one.name == "other-address"; });
    CHECK(grave(facts).empty());
}

TEST_CASE("an address without a route is found") {
    auto facts = clean_node();
    facts.looks["names"].records.push_back(
        fact("address value=2001:db8::7 loopback=0 reachable=0 failure=Network~is~unreachable"));
    const auto findings = grave(facts);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "name-route");
}

TEST_CASE("a GPU that NVML does not count is found, but not one that a container hides") {
    auto facts = clean_node();
    facts.looks["gpus"].records.pop_back();
    auto findings = grave(facts);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "gpu-count");
    CHECK(findings[0].measured == "1");
    CHECK(findings[0].expected == "2");
    plant(facts, "gpus", "count device-files=1");
    CHECK(grave(facts).empty());
    DoctorLimits limits;
    limits.set("gpu-count", 8);
    findings = grave(facts, limits);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].expected == "8");
}

TEST_CASE("GPUs on the bus without a driver are information, because a container sees those of its host") {
    auto facts = clean_node();
    facts.looks.erase("gpus");
    CHECK(grave(facts).empty());
    const auto all = examine(facts, {}, {});
    CHECK(std::ranges::any_of(all, [](const Finding& one) { return one.check == "gpu-driver"; }));
}

TEST_CASE("a list of interfaces for unlike nodes is right if one of its names is here") {
    auto facts = clean_node();
    facts.environment["NCCL_SOCKET_IFNAME"] = "eno1,eth0";
    facts.environment["NCCL_IB_HCA"] = "mlx4_0,mlx5_1";
    CHECK(grave(facts).empty());
}

TEST_CASE("a GID index is judged on the RoCE ports that NCCL uses") {
    auto facts = clean_node();
    facts.environment.erase("NCCL_IB_HCA");
    const auto measured = [&](const char* index) {
        facts.environment["NCCL_IB_GID_INDEX"] = index;
        const auto findings = grave(facts);
        return findings.empty() ? std::string() : cat(findings[0].check, ": ", findings[0].measured);
    };
    CHECK(measured("3").empty());
    CHECK(measured("-1").empty());
    CHECK(measured("1") == "rdma-gid: mlx5_1 port 1 has no GID 1");
    CHECK(measured("0") == "rdma-gid: GID 0 of mlx5_1 port 1 is IB/RoCE v1");
    facts.environment["NCCL_IB_HCA"] = "mlx5_0";  // InfiniBand alone
    CHECK(measured("0").empty());
    facts.environment["NCCL_IB_HCA"] = "^mlx5_0";
    CHECK(!measured("0").empty());
    // A port behind ':' is meant alone.
    for (const auto& [hca, is_judged] : {std::pair{"mlx5_1:1", true},
                                         {"mlx5_1:2", false},
                                         {"=mlx5_1:2,mlx5_0", false},
                                         {"mlx5_1:2,mlx5_1:1", true},
                                         {"^mlx5_1:1", false},
                                         {"^mlx5_1:2", true}}) {
        INFO(hca);
        facts.environment["NCCL_IB_HCA"] = hca;
        CHECK(measured("0").empty() != is_judged);
    }
    facts.environment["NCCL_IB_HCA"] = "mlx5_1";
    facts.environment["NCCL_IB_DISABLE"] = "1";
    CHECK(!measured("0").starts_with("rdma-gid"));
    facts.environment.erase("NCCL_IB_DISABLE");
    plant(facts, "pci", "gids device=mlx5_1 list=");
    CHECK(measured("3") == "rdma-gid: mlx5_1 port 1 has no GID 3");
    // iWARP, or a kernel that tells no types.
    std::erase_if(facts.looks["pci"].records, [](const auto& one) { return one.name == "gids"; });
    CHECK(measured("0").empty());
}

TEST_CASE("one GPU without InfiniBand copies to nobody, and Ethernet cards with RDMA's drivers are none") {
    auto facts = clean_node();
    auto& records = facts.looks["pci"].records;
    plant(facts, "pci", "acs address=0000:d0:01.0");
    plant(facts, "pci", "device address=0000:e0:00.0 iommu=DMA");
    std::erase_if(records, [](const auto& one) { return one.text("address") == "0000:e1:00.0"; });
    plant(facts, "gpus", "count device-files=1");
    CHECK(grave(facts).size() == 2);
    std::erase_if(records, [](const auto& one) { return one.text("layer") == "InfiniBand"; });
    facts.environment["NCCL_IB_HCA"] = "mlx5_1";
    facts.environment["NCCL_IB_DISABLE"] = "1";
    plant(facts, "system", "locked-memory soft=65536");
    CHECK(grave(facts).empty());
}

TEST_CASE("lanes are not judged where the slot's are not known") {
    auto facts = clean_node();
    plant(facts, "pci", "device address=0000:10:00.0 width=8");
    CHECK(grave(facts).empty());
}

TEST_CASE("in a virtual machine neither ACS nor the IOMMU is a finding") {
    auto facts = clean_node();
    plant(facts, "pci", "acs address=0000:d0:01.0");
    plant(facts, "pci", "device address=0000:e0:00.0 iommu=DMA");
    CHECK(grave(facts).size() == 2);
    plant(facts, "pci", "virtual value=1");
    CHECK(grave(facts).empty());
}

TEST_CASE("ports that are reserved are no finding") {
    auto facts = clean_node();
    plant(facts, "network", "ports first=1024 reserved=8080,29400-29500");
    CHECK(grave(facts).empty());
}

TEST_CASE("an unknown variable is information only if it looks like a typing error") {
    auto facts = clean_node();
    const auto infos = [&] {
        auto found = examine(facts, {}, {});
        std::erase_if(found, [](const Finding& one) { return one.check != "unknown-setting"; });
        return found;
    };
    facts.environment["NCCL_SOMETHING_OF_A_PLUGIN"] = "1";
    CHECK(infos().empty());
    // Documented, and near to names that switch InfiniBand or NVLink off.
    facts.environment["NCCL_PXN_DISABLE"] = "1";
    facts.environment["NCCL_NVB_DISABLE"] = "1";
    CHECK(infos().empty());
    facts.environment["NCCL_SOCKET_IFNAM"] = "eth";
    REQUIRE(infos().size() == 1);
    CHECK(infos()[0].expected == "perhaps NCCL_SOCKET_IFNAME");
}

TEST_CASE("nothing that was looked at is no finding but of the settings") {
    DoctorFacts facts;
    CHECK(grave(facts).empty());
    facts.environment = clean_node().environment;
    CHECK(grave(facts).empty());
}
