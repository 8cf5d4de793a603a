"""The loss of a node in `recovery --node`: two nodes of one rank each and a spare, with a daemon, all on this host.

A node is lost when all its processes are stopped: they send nothing and close nothing, as behind a broken cable.
"""
import contextlib
import os
import signal
import time
import uuid
from pathlib import Path

from measuring import Failed, Launched, family, musterd, noted_steps, wait_for

LEASE_S = 2
RANK = 1  # of the lost node. On one host a stopped rank 0 would keep the checkpoint directory (CHECKPOINT.md, "Who may write").
PATIENCE_S = 180


class Node(Launched):
    def __init__(self, build, port, job, script, scratch, environment):
        super().__init__([build / "bin/muster", "--nnodes=2", "--spares=1", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                          f"--rdzv-id={job}", "--local-addr=127.0.0.1", f"--lease={LEASE_S}", "--warm-workers=1",
                          "--warm-imports=torch,torch._dynamo,muster.torch", "--log-level=info", script, scratch, "cpu"], scratch, **environment)

    def has_standby(self):
        return "is ready; it has" in self.log.read_text()

    def send(self, number):
        for pid in family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self):
        self.send(signal.SIGCONT)  # a stopped launcher does not end
        super().end()


class Steps:
    """What the ranks have noted: (pid, time) of each step, by rank."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def since(self, rank, at):
        return [(pid, when) for _, pid, when in noted_steps(self.folder / str(rank)) if when > at]

    def first(self, lost_at, dead):
        """The first step of each rank in the next round; None before all have done one. A survivor does none without its peer."""
        rows = [[row for row in self.since(rank, lost_at + LEASE_S / 2) if row[0] != dead] for rank in (RANK, 1 - RANK)]
        return all(rows) and [one[0] for one in rows]


def lost_nodes(build, script, losses, scratch, environment):
    """Seconds from each loss to the last rank's next step."""
    times, steps, begun = [], Steps(scratch), time.monotonic()
    with musterd(build) as (port, _), contextlib.ExitStack() as stack:
        def start():
            return stack.enter_context(Node(build, port, job, script, scratch, environment))

        def tell():
            return "\n".join(node.log.read_text()[-700:] for node in nodes)
        job = uuid.uuid4().hex
        nodes = [start() for _ in range(3)]
        for number in range(losses):
            wait_for("training, and a standby process on each node", lambda: all(len(steps.since(rank, begun)) >= 10 for rank in (0, 1))
                     and all(node.has_standby() for node in nodes), PATIENCE_S, story=tell)
            dead, survivor = (steps.since(rank, begun)[-1][0] for rank in (RANK, 1 - RANK))
            lost = next(node for node in nodes if dead in family(node.process.pid))
            lost_at = time.monotonic()
            lost.send(signal.SIGSTOP)
            (new, first), (stayed, second) = wait_for("training after the loss", lambda: steps.first(lost_at, dead), PATIENCE_S, story=tell)
            if stayed != survivor:
                raise Failed(f"the rank of the other node had process {survivor}, and then {stayed}")
            times.append(max(first, second) - lost_at)
            warm = any(f"(pid {new}) is ready" in node.log.read_text() for node in nodes)
            print(f"loss {number + 1}: {times[-1]:6.2f} s, {'a warm worker' if warm else 'a normal start'}", flush=True)
            begun = max(first, second)
            lost.send(signal.SIGKILL)
            nodes[nodes.index(lost)] = start()
    return times
