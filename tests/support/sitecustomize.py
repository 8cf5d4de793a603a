"""For tests with PyTorch in a worker, by PYTHONPATH: a short end of the interpreter.

As it ends, Python looks for cycles among all objects several times. With PyTorch's that takes half a core-second, with its compiler's,
which DDP and optimizers import, a whole one: as much as to import them. What is frozen is not looked at. All else of the end happens."""
import atexit
import gc

atexit.register(gc.freeze)
