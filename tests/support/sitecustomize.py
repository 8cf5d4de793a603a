"""For tests with PyTorch in a worker, by PYTHONPATH: a Python that starts and ends sooner, and does the same.

DDP and optimizers import PyTorch's compiler only to keep it off their own functions, and that takes as long as all the rest of PyTorch.
Here it is imported when something else of it is asked for.

As it ends, Python looks for cycles among all objects several times. With PyTorch's that takes half a core-second. What is frozen is not
looked at."""
import atexit
import gc
import importlib
import sys
import types


class LateCompiler(types.ModuleType):
    """What DDP and optimizers use of torch._dynamo; the rest is PyTorch's."""
    disable = staticmethod(lambda function, *_, **__: function)
    graph_break = staticmethod(lambda: None)
    trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
    OptimizedModule = type("OptimizedModule", (), {})  # frameworks ask whether a model is one
    eval_frame = types.SimpleNamespace(OptimizedModule=OptimizedModule)
    kept = []

    def __getattr__(self, name):
        if name == "__file__":  # inspect asks all modules for it
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def get_optimize_ddp_mode():
    """Asked by each DDP as it is made. Importing the compiler keeps the caller's frame, so DDP lives on; freed at once, it may wait
    forever for gloo's threads, which wait for Python's lock (PyTorch's issue 190489)."""
    LateCompiler.kept.append(sys._getframe(1).f_locals["self"])
    return "ddp_optimizer"  # PyTorch's default


LateCompiler.utils = types.SimpleNamespace(get_optimize_ddp_mode=get_optimize_ddp_mode)
sys.modules["torch._dynamo"] = LateCompiler("torch._dynamo")
atexit.register(gc.freeze)
