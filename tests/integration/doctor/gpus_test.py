"""muster doctor --level 3 over the stand-ins for NVML and CUDA: a fault that is planted in one of two GPUs is named there, and nothing
else is named."""
import os
import unittest

import sick_node
from sick_node import Node

# Under load. The second GPU is on the same kind of link.
GPUS = {"MUSTER_NVML_LIBRARY": os.environ["FAKE_NVML_LIBRARY"], "FAKE_NVML": "GPU-a;GPU-b", "FAKE_NVML_HEALTH": "0 clocks 0 1 clocks 0",
        "MUSTER_CUDA_LIBRARY": os.environ["STANDIN_CUDA"]}
# A slow host computes what the GPU would, and other processes disturb it: only the test itself is judged.
LIMITS = "gpu-sisters-percent = 0\n"
OTHER_LOOKS = "names,network,system,pci,kernel-log,disks,settings"


@unittest.skipUnless(os.environ.get("CI") == "true" or sick_node.works(), "no namespaces can be made here")
class GpuTest(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node())

    def doctor(self, *words, limits="", **environment):
        (self.node.folder / "limits").write_text(LIMITS + limits)
        return self.node.doctor("--level", "3", "--skip", OTHER_LOOKS, "--limits", self.node.folder / "limits", *words,
                                **{**GPUS, **environment})

    def expect(self, answer, level, check, measured, gpu="GPU 1 (GPU-b)"):
        self.assertEqual(answer.named(), [(level, check)], answer.text + answer.error)
        finding = answer.finding()
        self.assertEqual(finding["what"], gpu)
        self.assertIn(measured, finding["measured"])
        self.assertEqual(answer.code, {"warning": 1, "critical": 2, "unknown": 3}[level])

    def test_clean_gpus_have_their_speeds_named_and_no_finding(self):
        answer = self.doctor()
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        speeds = [one for one in answer.json["findings"] if one["check"] == "gpu-speed"]
        self.assertEqual([one["what"] for one in speeds], ["GPU 0 (GPU-a)", "GPU 1 (GPU-b)"])
        for part in ("GFLOP/s in products in f16", "GFLOP/s in products in f32", "MB/s in copies within the GPU"):
            self.assertIn(part, speeds[0]["measured"])

    def test_wrong_results_are_named_on_their_gpu(self):
        for kernel, check, measured in (("CheckHalves", "gpu-checksum", "products of matrices in f16 are wrong"),
                                        ("CheckFloats", "gpu-checksum", "products of matrices in f32 are wrong"),
                                        ("PatternWrite", "gpu-memory", "2 words of 8 MiB")):
            with self.subTest(kernel):
                answer = self.doctor(MUSTER_STANDIN_GPU_FAULT=f"muster_{kernel}@GPU-b")
                self.expect(answer, "critical", check, measured)

    def test_slow_copies(self):
        answer = self.doctor(MUSTER_STANDIN_GPU_FAULT="slow_copy@GPU-b")
        self.assertEqual(answer.named(), [("warning", "gpu-copies")] * 2, answer.text)
        self.assertEqual({one["what"] for one in answer.json["findings"] if one["check"] == "gpu-copies"}, {"GPU 1 (GPU-b)"})

    def test_a_driver_that_hangs_costs_its_limit_and_blocks_nothing(self):
        answer = self.doctor(limits="gpu-test-timeout-ms = 15000\n", MUSTER_STANDIN_GPU_FAULT="hang@GPU-a")
        self.expect(answer, "unknown", "gpu-test", "no answer within 15 s, in the start of CUDA", "GPU 0 (GPU-a)")
        self.assertIn("GPU 1 (GPU-b)", [one["what"] for one in answer.json["findings"] if one["check"] == "gpu-speed"])

    def test_a_gpu_that_another_process_uses_is_left_alone(self):
        use = self.node.folder / "use"
        use.write_text(f"0\n1000 {os.getpid()}:900\n")
        self.expect(self.doctor(FAKE_NVML_USE=str(use)), "unknown", "gpu-in-use", f"in use by process {os.getpid()} (")

    def test_a_gpu_without_free_memory_is_no_fault(self):
        self.expect(self.doctor(MUSTER_STANDIN_GPU_FAULT="no_memory@GPU-b"), "unknown", "gpu-test-failed", "out of memory")

    def test_without_cuda_nothing_is_known(self):
        answer = self.doctor(MUSTER_CUDA_LIBRARY="/none/libcudart.so", FAKE_NVML="GPU-b")
        self.expect(answer, "unknown", "gpu-test-failed", "no CUDA runtime library", "GPU 0 (GPU-b)")

    def test_errors_and_heat_under_load(self):
        health = {"FAKE_NVML_HEALTH": "0 clocks 0 1 clocks 64"}
        answer = self.doctor("--skip", "gpu-throttle", **health)
        self.expect(answer, "warning", "gpu-under-load", "too hot (hardware)")

    def test_the_test_can_be_left_out(self):
        answer = self.doctor("--skip", "gpu-test")
        self.assertEqual((answer.named(), answer.code), ([], 0), answer.text + answer.error)
        self.assertNotIn("gpu-speed", answer.text)
        self.assertLess(answer.took, 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
