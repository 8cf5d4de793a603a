"""muster doctor: each planted fault is named by its own check, nothing else is named, and a clean node has no finding."""
import os
import unittest

import sick_node
from sick_node import ADDRESS, NAME, Node, roomy, silent_disk

GPUS = {"MUSTER_NVML_LIBRARY": os.environ["FAKE_NVML_LIBRARY"], "FAKE_NVML": "GPU-a;GPU-b"}

# check, level, shell commands that plant it, a part of what is measured
FAULTS = [
    ("shared-memory", "warning", "mount -t tmpfs -o size=64m none /dev/shm", "64 MiB (Docker's default)"),
    ("open-files", "warning", "ulimit -S -n 256", "256 (soft)"),
    ("disk-write", "critical", "ulimit -f 512", "raise ulimit -f (RLIMIT_FSIZE)"),
    ("listen-backlog", "warning", "echo 128 > /proc/sys/net/core/somaxconn", "128"),
    ("tcp-abort-on-overflow", "warning", "echo 1 > /proc/sys/net/ipv4/tcp_abort_on_overflow", "1"),
    ("port-range", "warning", "echo 20000 60999 > /proc/sys/net/ipv4/ip_local_port_range", "20000 to 60999"),
]
# check, level, FAKE_NVML_HEALTH, a part of what is measured
SICK_GPUS = [
    ("gpu-recovery", "critical", "1 recovery 2", "reboot the node"),
    ("gpu-remapped-rows", "critical", "0 rows-pending 1", "replacement of a row is pending"),
    ("gpu-remapped-rows", "critical", "0 rows-failed 1", "could not be replaced"),
    ("gpu-ecc", "critical", "1 ecc-uncorrected 4", "4 uncorrected"),
    ("gpu-ecc", "warning", "1 sram-corrected 10001", "10001 corrected"),
    ("gpu-throttle", "warning", "0 clocks 64", "too hot (hardware), 10 of 10"),
    ("gpu-nvlink", "warning", "0 nvlinks 17", "17 active NVLinks"),
    ("gpu-fabric", "critical", "0 fabric 1", "has not registered"),
    ("gpu-lost", "critical", "1 lost 1", "Driver Not Loaded"),  # the stand-in knows one sentence
]


# An RDMA port without a link, which it has had.
LOST_PORT = """mkdir -p "$FOLDER/class/net" "$FOLDER/class/infiniband/mlx5_0/ports/1/counters"
cd "$FOLDER/class/infiniband/mlx5_0/ports/1"
echo "1: DOWN" > state
echo "2: Polling" > phys_state
echo 3 > counters/link_downed
echo 28.39.1002 > ../../fw_ver
echo "1: CA" > ../../node_type
cd /
mount --bind /sys/class/net "$FOLDER/class/net"
mount --rbind "$FOLDER/class" /sys/class"""

FIREWALL = """nft -f - << 'END'
table inet site {
    chain more {
        meta l4proto { icmp, ipv6-icmp } accept
        udp dport 68 accept
    }
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        iif lo accept
        tcp dport { 22, 80 } counter accept
        jump more
    }
}
END
"""
# An interface that is hardware, in a folder in the place of sysfs', which takes none.
INTERFACE = """mkdir -p "$FOLDER/net/ens1/device" "$FOLDER/net/ens1/statistics"
cd "$FOLDER/net/ens1"
echo 1 > type; echo 1 > carrier; echo 25000 > speed; echo full > duplex; echo 9000 > mtu
echo 0 > statistics/rx_errors; echo 3 > statistics/tx_errors; echo 600000 > statistics/rx_packets; echo 400000 > statistics/tx_packets
PLANT
cd /
mount --bind "$FOLDER/net" /sys/class/net"""


@unittest.skipUnless(os.environ.get("CI") == "true" or sick_node.works(), "no namespaces can be made here")
class Doctor(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node())

    def expect(self, answer, level, check, measured=""):
        self.assertEqual(answer.named(), [(level, check)], answer.text + answer.error)
        self.assertIn(measured, answer.finding()["measured"])
        self.assertEqual(answer.code, {"warning": 1, "critical": 2, "unknown": 3}[level])

    def test_a_clean_node_has_no_finding(self):
        answer = self.node.doctor()
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        self.assertEqual(answer.json["host"], NAME)
        self.assertIn(answer.json["checks"], range(30, 60))  # none of level 2 or 3

    def test_a_clean_node_with_gpus_has_no_finding(self):
        answer = self.node.doctor(**GPUS)
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        self.assertIn("570.00", answer.text)

    def test_a_name_that_is_loopback(self):
        (self.node.folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {NAME}\n")
        answer = self.node.doctor()
        self.expect(answer, "warning", "own-name", "resolves to 127.0.1.1")
        self.assertIn(f"'{ADDRESS} {NAME}'", answer.finding()["mend"])

    def test_an_address_without_a_route(self):
        (self.node.folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n2001:db8::7 {NAME}\n")
        self.expect(self.node.doctor(), "warning", "name-route", "has no route")

    def test_faults_of_the_kernel_and_its_devices(self):
        for check, level, plant, measured in FAULTS:
            with self.subTest(check):
                self.expect(self.node.doctor(plant=plant), level, check, measured)

    def test_a_firewall_that_accepts_no_peer(self):
        answer = self.node.doctor(plant=FIREWALL)
        self.expect(answer, "warning", "firewall", "accepts no new connection on the ports of ranks")
        self.assertEqual(answer.finding()["what"], "the firewall's chain inet site input")
        self.assertEqual(self.node.doctor(plant=FIREWALL + "nft insert rule inet site input ip saddr 10.9.0.0/24 accept").named(), [])

    def test_a_firewall_whose_rules_cannot_be_read(self):
        program = self.node.folder / "nft"
        for script, named in (("echo 'Operation not permitted (you must be root)' >&2; exit 1", []), ("exec sleep 60", [("unknown", "firewall")]),
                              ("head -c 70000 /dev/zero | tr '\\0' x", [])):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            with self.subTest(script):
                answer = self.node.doctor(PATH=f"{self.node.folder}:{os.environ['PATH']}", hangs=["firewall"] if "sleep" in script else ())
                self.assertEqual(answer.named(), named, answer.text)
                found = [one for one in answer.json["findings"] if one["check"] == "firewall"]
                self.assertRegex(found[0]["measured"], "could not look: (Operation not permitted|more than 60,000 bytes)|no answer within 2 s")

    def test_an_interface_that_negotiated_badly_or_has_errors(self):
        for check, plant, measured in (("interface-speed", "echo 100 > speed", "100 Mbit/s, full duplex"), ("interface-speed", "echo half > duplex", "half duplex"),
                                       ("interface-errors", "echo 5000 > statistics/rx_errors", "5003 errors in 1000000 packets"), ("", ":", ""),
                                       ("", "ln -s /sys/bus/usb device/subsystem; echo 425 > speed; echo half > duplex", "")):
            with self.subTest(plant):
                answer = self.node.doctor(plant=INTERFACE.replace("PLANT", plant))
                if check:
                    self.expect(answer, "warning", check, measured)
                    self.assertEqual(answer.finding()["what"], "ens1")
                else:
                    self.assertEqual(answer.named(), [])

    def test_an_rdma_port_that_lost_its_link(self):
        # Who may not raise the limit of locked memory has a second finding.
        answer = self.node.doctor("--skip", "locked-memory", plant=LOST_PORT)
        self.expect(answer, "critical", "rdma-port", "DOWN, Polling; lost its link 3 times")
        self.assertIn(("firmware of mlx5_0", "28.39.1002"), [(one["what"], one["measured"]) for one in answer.json["findings"]])

    def test_a_gid_that_a_roce_port_does_not_have(self):
        plant = LOST_PORT.replace("DOWN", "ACTIVE").replace("Polling", "LinkUp") + """
cd /sys/class/infiniband/mlx5_0/ports/1
mkdir -p gids gid_attrs/types
echo Ethernet > link_layer
for index in 0 1 2 3; do echo 0000:0000:0000:0000:0000:0000:0000:0000 > gids/$index; done
echo fe80:0000:0000:0000:0a00:00ff:fe00:0007 > gids/0; echo IB/RoCE v1 > gid_attrs/types/0
echo 0000:0000:0000:0000:0000:ffff:0a09:0007 > gids/3; echo RoCE v2 > gid_attrs/types/3
cd /"""
        for index, measured in (("1", "mlx5_0 port 1 has no GID 1"), ("0", "GID 0 of mlx5_0 port 1 is IB/RoCE v1")):
            with self.subTest(index):
                answer = self.node.doctor(plant=plant, NCCL_IB_GID_INDEX=index)
                self.expect(answer, "warning", "rdma-gid", measured)
                self.assertEqual(answer.finding()["expected"], "RoCE v2: 3")
        self.assertEqual(self.node.doctor(plant=plant, NCCL_IB_GID_INDEX="3").named(), [])

    def test_each_bad_field_of_a_gpu(self):
        for check, level, health, measured in SICK_GPUS:
            with self.subTest(health):
                self.expect(self.node.doctor(**GPUS, FAKE_NVML_HEALTH=health), level, check, measured)

    def test_fewer_gpus_than_on_the_bus(self):
        for slot in "123":
            self.node.gpu(f"0000:e{slot}:00.0")
        self.expect(self.node.doctor(**GPUS), "critical", "gpu-count", "2")

    def test_a_driver_that_fails(self):
        self.expect(self.node.doctor(**{**GPUS, "FAKE_NVML": "broken"}), "critical", "gpu-driver", "Driver Not Loaded")

    def test_a_driver_that_hangs_costs_its_limit_and_blocks_nothing(self):
        answer = self.node.doctor(plant="ulimit -S -n 256", hangs=["gpus"], **{**GPUS, "FAKE_NVML": "hang"})
        self.assertEqual(answer.named(), [("unknown", "gpus"), ("warning", "open-files")])
        self.assertEqual((answer.code, answer.finding()["measured"]), (3, "no answer within 4.5 s"))

    def test_a_full_disk(self):
        plant = "mount -t tmpfs -o size=2m none /mnt && (dd if=/dev/zero of=/mnt/full bs=64k 2> /dev/null || true)"
        answer = self.node.doctor("--dir", "/mnt", plant=plant)
        self.expect(answer, "critical", "disk-space", "0 MiB free")
        self.assertEqual(answer.finding()["what"], "/mnt")

    def test_a_directory_that_does_not_exist(self):
        answer = self.node.doctor("--dir=/mnt/none")
        self.expect(answer, "critical", "disk-write", "No such file")
        self.assertEqual(answer.finding()["mend"], "make the directory, or name another one")

    def test_a_disk_that_hangs_costs_its_limit_and_blocks_nothing(self):
        # The other directories are looked at within the same limit.
        (self.node.folder / "limits").write_text(roomy("disks") + "disks-timeout-ms = 12000\n")
        answer = self.node.doctor("--dir", "/mnt", "--limits", self.node.folder / "limits", before=silent_disk("/mnt"))
        self.expect(answer, "unknown", "disks", "no answer within 12 s")
        self.assertEqual(answer.finding()["what"], "/mnt")

    def test_a_resolver_that_does_not_answer(self):
        (self.node.folder / "hosts").write_text("127.0.0.1 localhost\n")
        (self.node.folder / "resolv.conf").write_text("nameserver 10.9.0.99\noptions timeout:9\n")
        self.expect(self.node.doctor(hangs=["names"]), "unknown", "names", "no answer within 2.5 s")

    def test_wrong_settings(self):
        for check, settings in (("socket-interface", {"NCCL_SOCKET_IFNAME": "ens5"}), ("socket-interface", {"GLOO_SOCKET_IFNAME": "eth"}),
                                ("slow-setting", {"NCCL_DEBUG": "TRACE"}), ("old-setting", {"NCCL_BLOCKING_WAIT": "1"})):
            with self.subTest(settings):
                self.expect(self.node.doctor(**settings), "warning", check)

    def test_skipped_checks_and_other_limits(self):
        plant = "ulimit -S -n 256"
        for words in (("--skip", "open-files"), ("--skip=gpus,system",)):
            self.assertEqual(self.node.doctor(*words, plant=plant).named(), [])
        (self.node.folder / "limits").write_text(roomy() + "# this kind of machine\nopen-files = 200\n")
        self.assertEqual(self.node.doctor("--limits", self.node.folder / "limits", plant=plant).named(), [])
        (self.node.folder / "limits").write_text(roomy() + "shm-mib = 4096\n")
        self.expect(self.node.doctor("--limits", self.node.folder / "limits"), "warning", "shared-memory", "2048 MiB")

    def test_wrong_words_are_one_sentence(self):
        (self.node.folder / "limits").write_text("shm-gib = 4\n")
        for words, sentence in ((("--skip", "shard-memory"), "the nearest is shared-memory"),
                                (("--limits", "/none"), "--limits: read /none"),
                                (("--limits", str(self.node.folder / "limits")), "line 1: there is no limit 'shm-gib'"),
                                (("--limits",), "--limits: a value is missing"), (("--level", "2"), "--level 2: no scheduler"), (("now",), "unknown word 'now'"),
                                (("explain", "shm-mb"), "the nearest is shm-mib")):
            with self.subTest(words):
                answer = self.node.doctor(*words, json_output=False)
                self.assertEqual((answer.code, answer.text, len(answer.error.splitlines())), (3, "", 1), answer.error)
                self.assertIn(sentence, answer.error)

    def test_the_other_outputs(self):
        answer = self.node.doctor(json_output=False, plant="ulimit -S -n 256")
        self.assertRegex(answer.text, r"\Awarning: open-files: the limit of open files: 256 .*Mend: ulimit -n \d+.*\n")
        self.assertRegex(answer.text, rf"(?m)^{NAME}: \d+ checks in \d+ ms: 1 warning")
        nagios = self.node.doctor("--nagios", json_output=False, plant="ulimit -S -n 256")
        self.assertRegex(nagios.text, r"\AMUSTER WARNING - 1 warning.*; open-files: .* \| checks=\d+ time=\d+ms\n")
        self.assertEqual(nagios.code, 1)
        explained = self.node.doctor("explain", "NCCL_IB_DISABLE", json_output=False)
        self.assertIn("TCP", explained.text)
        self.assertIn("shared-memory", self.node.doctor("explain", json_output=False).text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
