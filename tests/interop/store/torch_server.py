"""PyTorch's own store server, libuv or legacy: prints "port N", serves until stdin ends."""
import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
print("port", store.port, flush=True)
sys.stdin.read()
