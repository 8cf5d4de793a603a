"""What the two DDP examples have in common beside their data: their options, and a digest of what they learned."""
import argparse
import hashlib

import torch


def options(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="digits.csv, of this repository's worker_runtime/examples/data")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    parser.add_argument("--order", help="a file that gets a line for each step: its epoch and this rank's samples")
    parser.add_argument("--die-once", metavar="FILE", help="rank 1 kills itself at step 23, unless FILE is there")
    return parser.parse_args()


def digest(model):
    """The same for the same bits of all weights."""
    total = hashlib.sha256()
    for tensor in model.state_dict().values():
        total.update(bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()))
    return total.hexdigest()[:16]
