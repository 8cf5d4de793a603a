"""GPUs before workers start on them: others' processes are named, and memory of dead workers is waited for. How busy they are."""
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "elastic"))
from job import Job, wait_for  # noqa: E402
from status_test import status  # noqa: E402

GIB = 1 << 30
# In the first round it takes memory of a GPU and dies of an error; its memory stays.
WORKER = f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then echo {41 * GIB} > "$FAKE_NVML_USE"; exit 1; fi; echo second start'


class Gpus(unittest.TestCase):
    def launch(self, job, worker, start=f"{3 * GIB} {os.getpid()}:{2 * GIB}\n{GIB}\n", **extra):
        use = job.directory / "use"
        use.write_text(start)
        return use, job.spawn("muster", "--max-restarts", "1", "--no-python", "/bin/sh", "-c", worker.replace("$", "$$"),
                              MUSTER_NVML_LIBRARY=os.environ["FAKE_NVML_LIBRARY"], FAKE_NVML_USE=str(use), **extra)

    def test_memory_of_dead_workers_is_waited_for_and_strangers_are_named(self):
        with Job() as job:
            use, launcher = self.launch(job, WORKER, FAKE_NVML="GPU-a;GPU-b")
            said = launcher.err.read_text
            wait_for("word of the wait", lambda: "waiting for GPU memory of ended workers: 40960 MiB of GPU 0\n" in said())
            self.assertIn(f"GPU 0 (GPU-a) is used by another process, pid {os.getpid()} (", said())
            self.assertIn(") with 2048 MiB\n", said())
            self.assertNotIn("second start", launcher.out.read_text())
            use.write_text(f"{GIB}\n{GIB}\n")
            self.assertEqual(launcher.wait(60), 0, said())
            self.assertIn("second start", launcher.out.read_text())
            self.assertEqual(said().count("another process, pid"), 1)

    def test_memory_of_a_killed_agents_workers_is_not_taken_for_somebody_elses(self):
        gpu = f"GPU-of-test-{os.getpid()}"
        worker = f'echo {41 * GIB} > "$FAKE_NVML_USE"; exec sleep 600'
        with Job() as job:
            use, killed = self.launch(job, worker, FAKE_NVML=gpu)
            wait_for("the first worker", lambda: use.read_text() == f"{41 * GIB}\n")
            killed.kill()
            killed.wait()
            use, second = self.launch(job, "echo second start", FAKE_NVML=gpu, start=f"{41 * GIB}\n")
            said = second.err.read_text
            wait_for("word of the wait", lambda: "waiting for GPU memory of ended workers: 40960 MiB of GPU 0\n" in said())
            use.write_text(f"{GIB}\n")
            self.assertEqual(second.wait(60), 0, said())
            self.assertIn("second start", second.out.read_text())
            self.assertEqual(list(pathlib.Path("/dev/shm").glob(f"muster-gpus.{os.getuid()}.{second.pid}")), [])

    def test_a_driver_that_does_not_answer_holds_up_nothing(self):
        with Job() as job:
            _, launcher = self.launch(job, WORKER, FAKE_NVML="broken")
            self.assertEqual(launcher.wait(60), 0, launcher.err.read_text())
            self.assertNotIn("waiting for GPU", launcher.err.read_text())

    def test_how_busy_gpus_are_is_told_where_it_is_asked_for_and_while_workers_run(self):
        with Job() as job:
            job.daemon()

            def node(end, *options, **extra):
                return job.spawn("muster", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--rdzv-id",
                                 job.id, *options, "--no-python", "/bin/sh", "-c", f"while ! test -e {end}; do sleep 0.1; done",
                                 MUSTER_NVML_LIBRARY=os.environ["FAKE_NVML_LIBRARY"], FAKE_NVML="GPU-a;GPU-b;GPU-c",
                                 FAKE_NVML_HEALTH="0 busy 97 1 busy 12", FAKE_NVML_ASKED=job.directory / f"asked-{end}", **extra)

            def told(launcher):
                jobs = json.loads(status(job, "--json").stdout)["jobs"]
                return next((node for one in jobs for node in one["nodes"] if node["pid"] == launcher.pid), {})

            def metric():
                return 'muster_gpu_utilization_ratio{job="%s",gpu="1"} 0.12\n' % job.id in metrics.read_text()

            silent = node("silent")
            asked = node("asked", "--gpu-use", "--metrics-file", job.directory, CUDA_VISIBLE_DEVICES="1,0")
            metrics = job.directory / f"muster_{job.id}.prom"
            wait_for("how busy its GPUs are", lambda: "gpus" in told(asked))
            self.assertEqual(told(asked)["gpus"], [{"index": 0, "busy_percent": 97}, {"index": 1, "busy_percent": 12}])
            self.assertIn("\nGPU use: 54 % on average of 2 GPUs, lowest 12 % (GPU 1 of ", status(job, job.id).stdout)
            wait_for("its metric", metric)
            job.touch("asked")
            wait_for("the end of its numbers with its workers", lambda: "gpus" not in told(asked) and not metric())
            self.assertEqual((asked.poll(), told(silent)["place"]), (None, "running"))
            self.assertNotIn("gpus", told(silent))
            self.assertEqual(set((job.directory / "asked-asked").read_text()), set("012"))
            self.assertFalse((job.directory / "asked-silent").exists())
            job.touch("silent")
            self.assertEqual([launcher.wait(60) for launcher in (asked, silent)], [0, 0])

    def test_a_launcher_that_waits_for_memory_can_be_stopped(self):
        with Job() as job:
            _, launcher = self.launch(job, WORKER, FAKE_NVML="GPU-a")
            wait_for("word of the wait", lambda: "waiting for GPU memory" in launcher.err.read_text())
            launcher.terminate()
            self.assertEqual(launcher.wait(60), 143)


if __name__ == "__main__":
    unittest.main(verbosity=2)
