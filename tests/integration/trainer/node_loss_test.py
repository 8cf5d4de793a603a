#!/usr/bin/env python3
"""A whole node is lost, with its agent and all that this kept, and the training goes on from the copies on the next node:
at most one step is taken again, and the result has the bits of a training that nobody disturbed."""

import os
import re
import socket
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "elastic"))
from job import WORKERS, Job, wait_for  # noqa: E402

STEPS = 500


class Loss(Job):
    """A job of sharded_steps."""

    def training(self, nnodes, **extra):
        # The long lease is for a busy machine: the guardian of a killed launcher reports its end at once.
        return self.spawn("muster", "--nnodes", nnodes, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                          f"127.0.0.1:{self.port}", "--rdzv-id", self.id, "--rdzv-conf", "last_call_timeout=60", "--lease", 60,
                          "--checkpoint-dir", self.directory / "ckpt", "--no-python", WORKERS / "sharded_steps", STEPS, **extra)

    def said(self, what):
        """The last that any rank 0 said of this kind, over all launchers."""
        told = [line for node in self.launchers for line in node.out.read_text().splitlines()]
        return [match for line in told if (match := re.fullmatch(what, line))]

    def steps(self):
        return [int(found[1]) for found in self.said(r"step (\d+)")]

    def result(self, nodes):
        for node in nodes:
            self.expect_exit(node, 0, 120)
        return self.said(r"sum (\w{16})")[-1][1]


class Listener:
    """Somebody on the way: reads what passes through loopback, and looks for `words`."""

    def __init__(self, words):
        self.words = words
        self.heard_bytes = 0
        self.heard_words = False

    def __enter__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.1)  # between two looks at whether the job is over
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.socket.close()

    def listen(self):
        while not self.over.is_set():
            try:
                packet = self.socket.recv(1 << 17)
            except TimeoutError:
                continue
            self.heard_bytes += len(packet)
            self.heard_words = self.heard_words or self.words in packet


class NodeLoss(unittest.TestCase):
    def undisturbed(self):
        with Loss() as job:
            job.daemon()
            return job.result([job.training("1")])

    def lose(self, job, nodes, victim):
        """Kills the agent of that place."""
        wait_for("100 steps", lambda: len(job.steps()) >= 100)
        nodes[victim].kill()
        nodes[victim].wait()
        job.touch("go")

    def check(self, nnodes, victim, replaced, copies=True):
        with Loss() as job:
            # However late the kill is, the job is not over.
            extra = {"MUSTER_TEST_GATE": str(job.directory / "go"), **({} if copies else {"MUSTER_TEST_COPIES": "0"})}
            daemon = job.daemon()
            nodes = [job.training(nnodes, **extra) for _ in range(2)]
            self.lose(job, nodes, victim)
            if replaced:
                nodes[victim] = job.training(nnodes, **extra)
            else:
                del nodes[victim]
            weights = job.result(nodes)
            steps = job.steps()
            starts = [(int(found[1]), found[2]) for found in job.said(r"from (\d+) (\w+)")]
            job.expect_gone(but=[daemon])
        again = len(steps) - STEPS
        return weights, starts, again

    def test_a_lost_node_is_replaced_and_one_step_is_taken_again_at_most(self):
        whole = self.undisturbed()
        for victim in (0, 1):
            with self.subTest(victim=victim):
                weights, starts, again = self.check("2", victim, replaced=True)
                self.assertEqual(weights, whole)
                self.assertEqual(sorted(where for _, where in starts), ["memory", "nothing"])
                self.assertIn(again, (0, 1))

    def test_the_node_that_is_left_goes_on_alone_from_memory(self):
        weights, starts, again = self.check("1:2", 1, replaced=False)
        self.assertEqual(weights, self.undisturbed())
        self.assertEqual(sorted(where for _, where in starts), ["memory", "nothing"])
        self.assertIn(again, (0, 1))

    def test_without_copies_a_lost_node_takes_the_state_along(self):
        weights, starts, again = self.check("2", 1, replaced=True, copies=False)
        self.assertEqual(weights, self.undisturbed())
        self.assertEqual([where for _, where in starts], ["nothing", "nothing"])
        self.assertGreaterEqual(again, 100)

    @unittest.skipUnless(os.geteuid() == 0, "only root may listen on the way")
    def test_with_a_key_the_copies_are_encrypted_on_their_way(self):
        for key in ({}, {"MUSTER_KEY": "the key of the test"}):
            with self.subTest(key=key), Loss() as job, Listener(f'"muster_job":"{job.id}"'.encode()) as listener:
                job.spawn("musterd", "--port", job.port, "--first-start", **key)
                wait_for("listening musterd", job.answers)
                nodes = [job.training("2", **key) for _ in range(2)]
                wait_for("100 steps", lambda: len(job.steps()) >= 100)
                job.result(nodes)
                self.assertGreater(listener.heard_bytes, 1 << 20)
                # The head of a snapshot, which without a key anybody on the way can read.
                self.assertEqual(listener.heard_words, not key)


if __name__ == "__main__":
    unittest.main(verbosity=2)
