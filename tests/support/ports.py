"""Ports for what a test is going to start, and cannot give port 0 to."""
import random
import socket

# Who has taken which port, until this process ends: names of the network's own, which no process can leave behind.
taken = []

ANYWHERE = (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")


def free_port():
    """A port that nobody listens on, that no other test is given, and that is below the defaults 29400 and 29500 and the range from
    which the kernel takes those of outgoing connections and of listeners without a wish: one of these could be taken before it is
    used."""
    for _ in range(1000):
        port = random.randint(15000, 29300)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0muster-test-port-{port}")
            with socket.socket(ANYWHERE[0]) as probe:
                probe.bind((ANYWHERE[1], port))
        except OSError:
            claim.close()
            continue
        taken.append(claim)
        return port
    raise OSError("no free port from 15000 to 29300")
