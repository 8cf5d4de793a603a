"""In PYTHONPATH, lets PyTorch run without its compiler, for workers of tests which compile nothing.

The first DistributedDataParallel or optimizer of a process imports torch._dynamo: 800 modules, for one setting and a
decorator. That takes a core nearly as long as the rest of PyTorch. At its end Python searches everything for cycles of garbage,
which the process's end frees as well."""
import atexit
import gc
import importlib.abc
import importlib.machinery
import sys
import types


class Compiler(types.ModuleType):
    """What eager code asks torch._dynamo for. Whatever else it asks for is an AttributeError."""

    utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")

    @staticmethod
    def disable(function, recursive=True, wrapping=True):
        return function

    @staticmethod
    def graph_break(message=""):
        pass


class NoCompiler(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "torch._dynamo" else None

    def create_module(self, spec):
        return Compiler(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, NoCompiler())
atexit.register(gc.freeze)
