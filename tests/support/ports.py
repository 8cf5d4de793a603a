"""Ports for what a test is going to start, and cannot give port 0 to."""
import random
import socket

# Who has taken which port, until this process ends: names of the network's own, which no process can leave behind.
taken = []


def free_port():
    """A port that nobody listens on, that no other test is given, and that is below the range from which the kernel takes
    those of outgoing connections and of listeners without a wish: one of these could be taken before it is used."""
    for _ in range(1000):
        port = random.randint(15000, 30000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0muster-test-port-{port}")
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::", port))
        except OSError:
            claim.close()
            continue
        taken.append(claim)
        return port
    raise AssertionError("no free port from 15000 to 30000")
