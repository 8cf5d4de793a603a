"""torchft in `recovery`: a lighthouse, and for each rank a torchrun of its own with one worker, as torchft's examples start them.

The lighthouse takes a replica that was silent for 1 s as gone (5 s by default), and waits as long for those that have not asked for the
next quorum. A survivor's time ends with its first step without the dead replica; the others train on while it starts again. The whole
time ends with the first step in which all take part once more.
"""
import contextlib
import os
import select
import signal
import subprocess
import time

from measuring import Failed, Launched, clean_environment, noted_steps, wait_for

# Serves until its stdin is closed.
LIGHTHOUSE = """
import sys
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000, quorum_tick_ms=100, heartbeat_timeout_ms=1000)
print(server.address(), flush=True)
sys.stdin.read()
server.shutdown()
"""

# torchft brings the weights of a replica that has them to all others.
SCRIPT = """
import os, sys, time
from datetime import timedelta
import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

network = torch.nn.Linear(256, 256)
inner = torch.optim.AdamW(network.parameters(), lr=0.01)

def load(state):
    network.load_state_dict(state["model"])
    inner.load_state_dict(state["optimizer"])

manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=1, load_state_dict=load,
                  state_dict=lambda: {"model": network.state_dict(), "optimizer": inner.state_dict()},
                  replica_id="replica" + sys.argv[2], timeout=timedelta(seconds=30), hostname="127.0.0.1")
model, optimizer = DistributedDataParallel(manager, network), Optimizer(manager, inner)
with open(os.path.join(sys.argv[1], sys.argv[2]), "a") as steps:
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()
        if manager.current_step() > before:  # it was kept, or these are the weights of another replica
            print(manager.num_participants(), os.getpid(), time.monotonic(), file=steps, flush=True)
        time.sleep(0.05)  # a device computes
"""


def version(python):
    """Empty where that Python has no torchft."""
    shown = subprocess.run([python, "-c", "import importlib.metadata as m; print(m.version('torchft'))"], capture_output=True, text=True)
    return shown.stdout.strip()


@contextlib.contextmanager
def lighthouse(python, environment):
    """The address of one."""
    with subprocess.Popen([python, "-c", LIGHTHOUSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=clean_environment(RUST_LOG="warn", **environment)) as process:
        try:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            address = ready and process.stdout.readline().strip()
            if not address:
                raise Failed("torchft's lighthouse did not start")
            yield address
        finally:
            process.kill()


@contextlib.contextmanager
def started(python, ranks, restarts, scratch, environment):
    """A Peer that is gone at the end. Each torchrun has a store of its own: its worker meets nobody but the lighthouse and the other replicas."""
    script = scratch / "torchft_train.py"
    script.write_text(SCRIPT)
    with contextlib.ExitStack() as stack:
        environment = {**environment, "TORCHFT_LIGHTHOUSE": stack.enter_context(lighthouse(python, environment))}
        command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", f"--max-restarts={restarts}", script, scratch]
        yield Peer(scratch, [stack.enter_context(Launched([*command, rank], scratch, **environment)) for rank in range(ranks)])


class Peer:
    def __init__(self, folder, replicas):
        self.folder, self.replicas, self.ranks = folder, replicas, len(replicas)

    def rows(self, rank, after=0.0):
        """(participants, pid, time) of each step."""
        return [row for row in noted_steps(self.folder / str(rank)) if row[2] > after]

    def wait(self, what, condition):
        def found():
            for replica in self.replicas:
                if (code := replica.process.poll()) is not None:
                    raise Failed(f"no {what}: a torchrun ended with {code}\n{replica.log.read_text()[-2000:]}")
            return condition()
        return wait_for(what, found, 180, story=lambda: "\n".join(one.log.read_text()[-500:] for one in self.replicas))

    def firsts(self, ranks, after, fits):
        """When each of these ranks had its first step that fits; None before all have one."""
        times = [next((at for count, pid, at in self.rows(rank, after) if fits(count, pid)), None) for rank in ranks]
        return None if None in times else times

    def recover(self, begun):
        """Seconds from the kill of rank 1 to the last survivor's next step, and to the last rank's with all of them; and when that was."""
        self.wait("training", lambda: all(len([row for row in self.rows(rank, begun) if row[0] == self.ranks]) >= 10 for rank in range(self.ranks)))
        victim, survivors = self.rows(1)[-1][1], [rank for rank in range(self.ranks) if rank != 1]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        fewer = max(self.wait("a step without the dead replica", lambda: self.firsts(survivors, killed, lambda count, _: count < self.ranks)))
        back = self.wait("its return", lambda: self.firsts([1], killed, lambda count, pid: count == self.ranks and pid != victim))[0]
        whole = max([back, *self.wait("a step of all", lambda: self.firsts(survivors, fewer, lambda count, _: count == self.ranks))])
        return fewer - killed, whole - killed, whole
