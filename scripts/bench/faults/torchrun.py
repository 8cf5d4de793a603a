"""torchrun in muster's place, for the rows that it can finish: its own store on node1, and its words in its log.

What it cannot finish: it acts upon no lost node (survivors wait in their collectives until these time out), its store
ends with its host, and a stopped agent is waited for.
"""
from cluster import Cluster, PORT

# What the agent of the failed worker logs, and what the others do when they see it come back to the rendezvous.
ENDED = r"failed \(exitcode|will restart worker group"


class TorchrunCluster(Cluster):
    """The same hosts and workers; there is no daemon, and a worker's round is its restart."""

    ended = ENDED
    count = "restart"
    stamp = "I%m%d %H:"

    def __init__(self, build, hosts, torchrun=None, **settings):
        super().__init__(build, hosts, **settings)
        self.torchrun = torchrun

    def start_daemon(self, *options):
        """Its store is in the agent of the first node."""

    def start_node(self, host, nnodes, **environment):
        first = next(iter(self.agents), host)
        self.agents[host] = self.spawn(
            host, self.torchrun, "--nnodes", nnodes, "--nproc-per-node", self.workers, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{self.hosts.address(first)}:{PORT}", "--rdzv-id", "faults",
            "--rdzv-conf", f"is_host={int(host == first)}", "--local-addr", self.hosts.address(host), "--max-restarts", "3",
            "--no-python", *self.program(), LOGLEVEL="INFO", **environment)
        return self.agents[host]
