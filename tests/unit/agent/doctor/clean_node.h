// The facts of a node without a fault: eight GPUs, InfiniBand and RoCE, bare metal.
#pragma once

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent::test {

/// The record `text` ("disk path=/tmp free=42"), with blanks for tabs; '~' stands for a blank.
inline FactRecord fact(std::string_view text) {
    std::string line(text);
    for (char& c : line) c = c == ' ' ? '\t' : c == '~' ? ' ' : c;
    return parse_look(line + "\nend\n", "").records.at(0);
}

inline Look look_of(std::initializer_list<std::string_view> records) {
    Look look{.state = Look::State::done, .why = {}, .records = {}};
    for (const auto record : records) look.records.push_back(fact(record));
    return look;
}

/// What nft or iptables prints.
inline Look firewall_of(std::string_view rules) {
    return parse_look(cat(rules, "end\n"), "");
}

inline constexpr std::string_view clean_gpu =
    "uuid=GPU-a memory=85899345920 rows-pending=0 rows-failed=0 ecc-uncorrected=0 sram-corrected=3 nvlinks=18 fabric=3 "
    "fabric-health=170 fabric-status=0 recovery=0 hw-slowdown=0 sw-thermal=0 hw-thermal=0 power-brake=0";

/// A GPU's test without a fault, on PCIe 5.0 x16.
inline Look clean_gpu_test() {
    return look_of({"target uuid=GPU-a name=NVIDIA~H200", "before ecc-uncorrected=0 rows-pending=0 rows-failed=0",
                    "step name=the~start~of~CUDA", "cuda memory-mbytes-per-s=4800000",
                    "product type=f16 count=400 wrong=0 gflops=250000",
                    "product type=f32 count=90 wrong=0 gflops=40000", "copy way=to~the~GPU mbytes-per-s=55000",
                    "copy way=from~the~GPU mbytes-per-s=54000", "copy way=within~the~GPU mbytes-per-s=2000000",
                    "copied wrong=0 mib=64", "memory mib=1024 wrong=0",
                    "load samples=40 hw-slowdown=0 sw-thermal=0 hw-thermal=0 power-brake=0 sm-mhz=1980 celsius=52 "
                    "watts=500 link-generation=5 link-width=16",
                    "after ecc-uncorrected=0 rows-pending=0 rows-failed=0"});
}

inline DoctorFacts clean_node() {
    DoctorFacts facts;
    facts.looks["names"] =
        look_of({"other-address value=10.0.0.7",
                 "name host=gpu07 ms=3 failure=", "address value=10.0.0.7 loopback=0 reachable=1 failure=",
                 "address value=127.0.1.1 loopback=1 reachable=1 failure="});
    facts.looks["network"] = look_of(
        {"interface name=eth0 loopback=0 running=1 hardware=1 speed=25000 duplex=full mtu=9000 errors=2 "
         "packets=9000000",
         "interface name=lo loopback=1 running=1 hardware=0 speed= duplex= mtu=65536 errors=0 packets=77",
         "interface name=eth1 loopback=0 running=0 hardware=1 speed=-1 duplex=unknown mtu=1400 errors=0 packets=0",
         // To the server's management controller.
         "interface name=usb0 loopback=0 running=1 hardware=1 bus=usb speed=425 duplex=half mtu=1500 errors=0 "
         "packets=9",
         "bond-member bond=bond0 name=eth2 state=up", "tcp somaxconn=4096 abort-on-overflow=0",
         "ports first=32768 last=60999 reserved=", "conntrack max=262144 count=300"});
    // As firewalld and ufw do, with the network of the nodes accepted.
    facts.looks["firewall"] = firewall_of(
        "table inet filter {\n chain input {\n type filter hook input priority filter; policy drop;\n"
        " ct state established,related accept\n iif \"lo\" accept\n counter jump sites\n }\n"
        " chain sites {\n tcp dport { 22, 80 } accept\n ip saddr 10.0.0.0/24 counter accept\n }\n}\n");
    facts.looks["system"] =
        look_of({"open-files soft=1024 hard=1048576", "locked-memory soft=unlimited hard=unlimited",
                 "core soft=unlimited hard=unlimited", "processes free=30000 limit=pids.max",
                 "memory-limit bytes=2199023255552 path=/sys/fs/cgroup/job", "shm bytes=536870912000",
                 "ptrace-scope value=1", "cpus usable=96", "version of=kernel is=6.1.0"});
    facts.looks["pci"] = look_of(
        {"rdma-port device=mlx5_0 port=1 state=ACTIVE phys=LinkUp layer=InfiniBand downed=1 interface=ib0 mtu=2044",
         "rdma-port device=mlx5_1 port=1 state=ACTIVE phys=LinkUp layer=Ethernet downed=0 interface=eth0 mtu=9000",
         "rdma-port device=mlx5_2 port=1 state=DOWN phys=Disabled layer=InfiniBand downed=0 interface= mtu=",
         "gids device=mlx5_1 port=1 list=0:IB/RoCE~v1,3:RoCE~v2",
         "device address=0000:e0:00.0 kind=GPU nvidia=1 width=16 width-max=16 bridge-width-max=16 iommu=identity",
         "device address=0000:e1:00.0 kind=GPU nvidia=1 width=8 width-max=16 bridge-width-max=8 iommu=",
         "device address=0000:10:00.0 kind=NIC nvidia=0 width=16 width-max=16 bridge-width-max= iommu=DMA",
         "gpu-module peermem=0 open=1"});
    facts.looks["kernel-log"] = look_of({"line text=6,1,2,-;NVRM:~Xid~(PCI:0000:e0:00):~31,~pid=42,~name=python3"});
    facts.looks["gpus"] = look_of({"version of=NVIDIA~driver is=570.1", "count device-files=2",
                                   cat("gpu index=0 ", clean_gpu), cat("gpu index=1 ", clean_gpu)});
    facts.looks["gpu-test GPU 0 (GPU-a)"] = clean_gpu_test();
    facts.looks["gpu-test GPU 1 (GPU-b)"] = clean_gpu_test();
    facts.looks["gpu-between"] = look_of({"between from=GPU-a to=GPU-b direct=1 wrong=0 mib=32 mbytes-per-s=390000",
                                          "between from=GPU-b to=GPU-a direct=1 wrong=0 mib=32 mbytes-per-s=388000"});
    facts.looks["gpu-reduce"] = look_of({"reduced gpus=2 mib=64 wrong=0 mbytes-per-s=360000"});
    facts.looks["dcgm"] =
        look_of({"+-----------+------+", "|~Diagnostic~|~Result~|", "|~Denylist~|~Pass~|", "|~Inforom~|~Skip~|"});
    facts.looks["rdma-write"] = look_of({"written device=mlx5_0 port=1 rate=200~Gb/sec~(4X~HDR) gbits=196.55 text="});
    facts.looks["disks /tmp"] =
        look_of({"disk path=/tmp free=99999999999 free-inodes=5000 inodes=9000 ms=12 failure="});
    facts.environment = {{"NCCL_SOCKET_IFNAME", "eth"}, {"GLOO_SOCKET_IFNAME", "eth0"}, {"NCCL_IB_HCA", "=mlx5_0:1"},
                         {"OMP_NUM_THREADS", "12"},     {"NCCL_DEBUG", "INFO"},         {"PATH", "/bin"}};
    return facts;
}

}  // namespace muster::agent::test
