"""muster doctor --level 3 over the stand-ins for NVML and CUDA: a fault that is planted in one of two GPUs is named there, and nothing
else is named."""
import os
import time
import unittest

import sick_node
from node_test import LOST_PORT as PORT
from sick_node import Node, roomy, silent_disk

# Under load.
ONE = {"MUSTER_NVML_LIBRARY": os.environ["FAKE_NVML_LIBRARY"], "FAKE_NVML": "GPU-b", "FAKE_NVML_HEALTH": "0 clocks 0 1 clocks 0",
       "MUSTER_CUDA_LIBRARY": os.environ["STANDIN_CUDA"], "MUSTER_NCCL_LIBRARY": os.environ["STANDIN_NCCL"],
       # The test multiplies for a second; the host need not compute all of that.
       "MUSTER_STANDIN_KERNEL_MS": "50"}
TWO = {"FAKE_NVML": "GPU-a;GPU-b"}
# A slow host computes what the GPU would, and other processes disturb it: only the test itself is judged.
LIMITS = {"gpu-sisters-percent": 0, **{f"{look}-timeout-ms": 600000 for look in ("gpus", "gpu-test", "gpu-between", "gpu-reduce")}}
OTHER_LOOKS = "names,network,firewall,system,pci,kernel-log,disks,settings"


@unittest.skipUnless(os.environ.get("CI") == "true" or sick_node.works(), "no namespaces can be made here")
class GpuTest(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node())

    def doctor(self, *words, limits={}, plant="", before=(), **environment):
        temporary = self.node.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        lines = "".join(f"{name} = {value}\n" for name, value in {**LIMITS, **limits}.items())
        (self.node.folder / "limits").write_text(roomy("gpus") + lines)
        answer = self.node.doctor("--level", "3", "--skip", OTHER_LOOKS, "--limits", self.node.folder / "limits", *words,
                                  plant=plant, before=before, **{**ONE, "TMPDIR": str(temporary), **environment})
        # A failed job keeps its logs, but not this one. Where it was killed, what removes them may end after the doctor.
        end = time.monotonic() + 30
        while os.listdir(temporary) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(os.listdir(temporary), [], answer.text)
        return answer

    def expect(self, answer, level, check, measured, gpu="GPU 0 (0000:e0:00.0, GPU-b)"):
        self.assertEqual(answer.named(), [(level, check)], answer.text + answer.error)
        finding = answer.finding()
        self.assertEqual(finding["what"], gpu)
        self.assertIn(measured, finding["measured"])
        self.assertEqual(answer.code, {"warning": 1, "critical": 2, "unknown": 3}[level])

    def test_clean_gpus_have_their_speeds_named_and_no_finding(self):
        answer = self.doctor(**TWO)
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        together = [one["measured"] for one in answer.json["findings"] if one["check"] == "gpu-all-reduce"]
        self.assertEqual(len(together), 1, answer.text)
        self.assertRegex(together[0], r"^\d+ MB/s \(busbw of \d+ MiB\), 2 GPUs$")
        speeds = [one for one in answer.json["findings"] if one["check"] == "gpu-speed"]
        self.assertEqual([one["what"] for one in speeds], ["GPU 0 (0000:e0:00.0, GPU-a)", "GPU 1 (0000:e1:00.0, GPU-b)"])
        for part in ("GFLOP/s in products in f16", "GFLOP/s in products in f32", "MB/s in copies within the GPU"):
            self.assertIn(part, speeds[0]["measured"])

    def test_wrong_results_are_named_on_their_gpu(self):
        for kernel, check, measured in (("CheckHalves", "gpu-checksum", "products of matrices in f16 are wrong"),
                                        ("CheckFloats", "gpu-checksum", "products of matrices in f32 are wrong"),
                                        ("PatternWrite", "gpu-memory", "2 words of 8 MiB")):
            with self.subTest(kernel):
                self.expect(self.doctor(MUSTER_STANDIN_GPU_FAULT=f"muster_{kernel}"), "critical", check, measured)

    def test_of_two_gpus_the_right_one_is_named(self):
        answer = self.doctor(MUSTER_STANDIN_GPU_FAULT="muster_CheckHalves@GPU-b", **TWO)
        self.expect(answer, "critical", "gpu-checksum", "f16 are wrong", "GPU 1 (0000:e1:00.0, GPU-b)")
        self.assertNotIn("gpu-all-reduce", answer.text)  # it takes GPUs that are right

    def test_gpus_that_are_not_for_this_job_are_left_alone(self):
        answer = self.doctor(CUDA_VISIBLE_DEVICES="GPU-b", **TWO)
        speeds = [one["what"] for one in answer.json["findings"] if one["check"] == "gpu-speed"]
        self.assertEqual((speeds, answer.code), (["GPU 1 (0000:e1:00.0, GPU-b)"], 0), answer.text)

    def test_of_five_gpus_the_bad_one_is_named_by_index_and_bus_and_the_others_are_tested_together(self):
        five = {"FAKE_NVML": ";".join(f"GPU-{letter}" for letter in "abcde")}
        answer = self.doctor("--skip", "gpu-reduce", MUSTER_STANDIN_GPU_FAULT="muster_PatternWrite@GPU-d", **five)
        self.expect(answer, "critical", "gpu-memory", "2 words of 8 MiB", "GPU 3 (0000:e3:00.0, GPU-d)")
        between = next(one["measured"] for one in answer.json["findings"] if one["check"] == "gpu-between")
        self.assertIn("12 of 12 without the host", between)

    def test_copies_between_gpus_name_the_one_that_spoils_them(self):
        three = {"FAKE_NVML": "GPU-a;GPU-b;GPU-c"}
        answer = self.doctor("--skip", "gpu-reduce", MUSTER_STANDIN_GPU_FAULT="wrong_peer@GPU-c", **three)
        self.expect(answer, "critical", "gpu-between", "words differ after copies with 2 of 2 other GPUs", "GPU 2 (0000:e2:00.0, GPU-c)")
        answer = self.doctor("--skip", "gpu-reduce", MUSTER_STANDIN_GPU_FAULT="wrong_peer@GPU-b", **TWO)
        self.expect(answer, "critical", "gpu-between", "1 words of 32 MiB differ after a copy",
                    "GPU 1 (0000:e1:00.0, GPU-b) to GPU 0 (0000:e0:00.0, GPU-a)")

    def test_slow_copies(self):
        answer = self.doctor(MUSTER_STANDIN_GPU_FAULT="slow_copy")
        self.assertEqual(answer.named(), [("warning", "gpu-copies")] * 2, answer.text)
        self.assertEqual({one["what"] for one in answer.json["findings"] if one["check"] == "gpu-copies"}, {"GPU 0 (0000:e0:00.0, GPU-b)"})

    def test_a_driver_that_hangs_costs_its_limit_and_blocks_nothing(self):
        answer = self.doctor(limits={"gpu-test-timeout-ms": 30000}, MUSTER_STANDIN_GPU_FAULT="hang@GPU-a", **TWO)
        self.expect(answer, "unknown", "gpu-test", "no answer within 30 s, in the start of CUDA", "GPU 0 (0000:e0:00.0, GPU-a)")
        self.assertIn("GPU 1 (0000:e1:00.0, GPU-b)", [one["what"] for one in answer.json["findings"] if one["check"] == "gpu-speed"])

    def test_a_gpu_that_another_process_uses_is_left_alone(self):
        use = self.node.folder / "use"
        use.write_text(f"0\n1000 {os.getpid()}:900\n")
        answer = self.doctor(FAKE_NVML_USE=str(use), **TWO)
        self.expect(answer, "unknown", "gpu-in-use", f"in use by process {os.getpid()} (", "GPU 1 (0000:e1:00.0, GPU-b)")
        self.assertNotIn("gpu-all-reduce", answer.text)

    def test_a_gpu_without_free_memory_is_no_fault(self):
        self.expect(self.doctor(MUSTER_STANDIN_GPU_FAULT="no_memory"), "unknown", "gpu-test-failed", "out of memory")

    def test_without_cuda_nothing_is_known(self):
        answer = self.doctor(MUSTER_CUDA_LIBRARY="/none/libcudart.so")
        self.expect(answer, "unknown", "gpu-test-failed", "no CUDA runtime library")

    def test_without_nccl_the_gpus_are_tested_alone(self):
        answer = self.doctor(MUSTER_NCCL_LIBRARY="/none/libnccl.so", **TWO)
        self.expect(answer, "unknown", "gpu-all-reduce", "no NCCL library", "all_reduce between the GPUs of this node")

    def test_an_all_reduce_that_hangs_costs_its_limit(self):
        library = self.node.folder / "libnccl.so"
        os.mkfifo(library)  # nobody writes to it, so it never opens
        answer = self.doctor(limits={"gpu-reduce-timeout-ms": 3000}, MUSTER_NCCL_LIBRARY=str(library), **TWO)
        self.expect(answer, "unknown", "gpu-reduce", "no answer within 3 s", "the look at gpu-reduce")

    def test_an_all_reduce_without_a_folder_costs_no_more(self):
        answer = self.doctor(TMPDIR="/none/here", **TWO)
        self.expect(answer, "unknown", "gpu-all-reduce", "cannot make a folder in /none/here;", "all_reduce between the GPUs of this node")

    @unittest.skipUnless(os.path.exists("/dev/fuse"), "no FUSE")
    def test_a_temporary_folder_on_a_disk_that_hangs_costs_the_limit(self):
        answer = self.doctor(limits={"gpu-reduce-timeout-ms": 3000}, before=silent_disk("/mnt"), TMPDIR="/mnt", **TWO)
        self.expect(answer, "unknown", "gpu-reduce", "no answer within 3 s", "the look at gpu-reduce")

    def test_heat_under_load(self):
        answer = self.doctor("--skip", "gpu-throttle", FAKE_NVML_HEALTH="0 clocks 64")
        self.expect(answer, "warning", "gpu-under-load", "too hot (hardware)")

    def test_what_dcgmi_finds(self):
        programs = self.node.folder / "bin"
        programs.mkdir()
        dcgmi = programs / "dcgmi"
        dcgmi.write_text("#!/bin/sh\necho '| Denylist   | Pass |'\necho '| Inforom    | Fail |'\nexit 226\n")
        dcgmi.chmod(0o755)
        answer = self.doctor("--skip", "gpu-reduce", PATH=f"{programs}:{os.defpath}")
        self.expect(answer, "critical", "gpu-dcgm", "Fail", "Inforom")

    def test_a_look_that_prints_too_much_or_ends_early_is_not_one_that_hangs(self):
        programs = self.node.folder / "bin"
        programs.mkdir()
        dcgmi = programs / "dcgmi"
        dcgmi.touch(0o755)
        for text, measured in (("head -c 100000 /dev/zero | tr '\\0' x", "more than 64 KiB of output"),
                               ("kill -KILL $PPID", "no whole answer: it ended early")):
            dcgmi.write_text(f"#!/bin/sh\n{text}\n")
            answer = self.doctor("--skip", "gpu-reduce", PATH=f"{programs}:{os.defpath}")
            self.expect(answer, "unknown", "dcgm", measured, "the look at dcgm")

    def write_bandwidth(self, text, plant=""):
        """What level 3 finds with `text` as ib_write_bw, beside an active port of 100 Gbit/s."""
        programs = self.node.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "ib_write_bw").write_text(text)
        (programs / "ib_write_bw").chmod(0o755)
        port = PORT.replace("DOWN", "ACTIVE").replace("Polling", "LinkUp") + '\necho "100 Gb/sec (4X EDR)" > /sys/class/infiniband/mlx5_0/ports/1/rate'
        answer = self.doctor("--skip", "gpu-reduce,gpu-test,locked-memory", plant=f"{port}\n{plant}", PATH=f"{programs}:{os.environ['PATH']}")
        return answer, [(one["what"], one["measured"]) for one in answer.json["findings"] if one["check"] == "rdma-write"]

    def test_what_ib_write_bw_measures(self):
        programs = self.node.folder / "bin"
        # A client that comes before the server is refused, as a real one is.
        text = f"""#!/bin/sh
case " $* " in
    *" 127.0.0.1 "*) test -e {programs}/ready || {{ echo "Couldn't connect to 127.0.0.1:18515"; exit 1; }}
        printf ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\\n'
        printf ' 65536      5000             98.20              '$(cat {programs}/speed)'\\t\\t0.18\\n' ;;
    *) sleep 0.3; touch {programs}/ready; exec sleep 600 ;;
esac
""".replace(str(programs), f"'{programs}'")
        programs.mkdir()
        for speed, named in (("97.61", []), ("40.50", [("warning", "rdma-write")])):
            (programs / "speed").write_text(speed)
            (programs / "ready").unlink(missing_ok=True)
            with self.subTest(speed):
                answer, measured = self.write_bandwidth(text)
                self.assertEqual(answer.named(), named, answer.text + answer.error)
                self.assertEqual(measured, [("mlx5_0 port 1", f"{speed[:2]} Gbit/s in RDMA writes of the port to itself")])

    def test_why_ib_write_bw_fails_is_told_and_not_that_nobody_listens_any_more(self):
        # Where an end fails it has ended, and the other one with it.
        refused = "echo \"Couldn't connect to 127.0.0.1:18515\"; exit 1"
        once = f"test -e '{self.node.folder}/once' && {{ {refused}; }}; : > '{self.node.folder}/once'"
        for server, client in (("echo 'Failed to create QP.'; exit 1", refused), ("exit 0", f"{once}; echo 'Failed to create QP.'; exit 1")):
            with self.subTest(server):
                text = f'#!/bin/sh\ncase " $* " in *" 127.0.0.1 "*) {client} ;; *) {server} ;; esac\n'
                answer, measured = self.write_bandwidth(text)
                self.assertEqual(answer.named(), [("warning", "rdma-write")], answer.text + answer.error)
                self.assertEqual(measured, [("mlx5_0 port 1", "ib_write_bw failed: Failed to create QP.")])

    def test_a_port_that_loses_its_link_under_load_is_named(self):
        text = """#!/bin/sh
case " $* " in
    *" 127.0.0.1 "*) echo 5 > /sys/class/infiniband/mlx5_0/ports/1/counters/link_downed; echo ' 65536  5000  98.20  97.61  0.18' ;;
    *) exec sleep 600 ;;
esac
"""
        answer, measured = self.write_bandwidth(text)
        self.assertEqual(answer.named(), [("warning", "rdma-write")], answer.text + answer.error)
        self.assertIn(("mlx5_0 port 1", "lost its link 2 times during the writes"), measured)

    def test_a_port_that_does_not_tell_its_lost_links_is_still_written_to(self):
        text = "#!/bin/sh\ncase \" $* \" in *\" 127.0.0.1 \"*) echo ' 65536  5000  98.20  97.61  0.18' ;; *) exec sleep 600 ;; esac\n"
        answer, measured = self.write_bandwidth(text, 'echo "N/A (no PMA)" > /sys/class/infiniband/mlx5_0/ports/1/counters/link_downed')
        self.assertEqual(answer.named(), [], answer.text + answer.error)
        self.assertEqual(measured, [("mlx5_0 port 1", "97 Gbit/s in RDMA writes of the port to itself")])

    def test_a_device_without_the_verbs_of_infiniband_is_not_written_to(self):
        for kind in ("4: RNIC", "7: unspecified"):
            with self.subTest(kind):
                answer, measured = self.write_bandwidth("#!/bin/sh\nexit 1\n", f'echo "{kind}" > /sys/class/infiniband/mlx5_0/node_type')
                self.assertEqual((answer.named(), measured), ([], []), answer.text + answer.error)

    def test_the_test_can_be_left_out(self):
        answer = self.doctor("--skip", "gpu-test")
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        self.assertNotIn("gpu-speed", answer.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
