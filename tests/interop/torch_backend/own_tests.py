#!/usr/bin/env python3
"""PyTorch's own tests of its back ends (distributed_test.py in the wheel), with muster wherever they ask for gloo.

usage: MUSTER_TORCH_BACKEND=muster PYTHONPATH=worker_runtime/python .venv/bin/python tests/interop/torch_backend/own_tests.py
       [-v] [T.test_NAME...]; without MUSTER_TORCH_BACKEND the tests run over gloo, for comparison, where none may fail

Needs the package `expecttest` beside torch. Not a CTest: it runs for two to four minutes. Ranks are forked, where torch starts new
processes, which takes a quarter of an hour. Exits with 0 if the failures are those of EXCEPTIONS, each of which says why.
"""
import os
import sys
import unittest

os.environ.update(BACKEND="gloo", OMP_NUM_THREADS="1", INIT_METHOD="env://")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", "/tmp")
os.environ.pop("CI", None)  # asks for a package that writes reports

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401
import torch.testing._internal.common_distributed as common  # noqa: E402

common.DistTestCases.backend_feature["plugin"].add("muster")  # else all tests of what gloo alone has would be skipped

import torch.testing._internal.distributed.distributed_test as theirs  # noqa: E402

EXCEPTIONS = {
    "test_Backend_enum_class": "Backend('gloo') is 'muster', as was asked",
    "test_get_backend": "get_backend() is 'muster', as was asked",
    **{f"test_monitored_barrier_gloo{case}": "dist.monitored_barrier() takes gloo's groups only, by name"
       for case in ("", "_rank_0_timeout", "_subgroup")},
    "test_ddp_logging_data_cpu": "DDP's log has torch's name of all back ends that are not its own: 'custom'",
}
TESTS = os.getpid()


class QuickEnd:
    """sys, but a rank leaves without the end of its interpreter, which takes a second."""

    def __getattr__(self, name):
        return getattr(sys, name)

    def __setattr__(self, name, value):
        setattr(sys, name, value)

    def exit(self, code=0):
        if os.getpid() != TESTS:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)
        sys.exit(code)


theirs.sys = common.sys = QuickEnd()


class T(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def main():
    backend = torch.distributed.Backend("gloo")
    exceptions = set(EXCEPTIONS if backend == "muster" else ())
    run = unittest.main(exit=False).result
    failed = {test.id().split(".")[-1] for test, _ in run.errors + run.failures}
    ran = run.testsRun - len(run.skipped)
    print(f"{backend}: {ran} tests ran, {len(run.skipped)} were skipped; exceptions: {', '.join(sorted(failed & exceptions)) or 'none'}; "
          f"failed: {', '.join(sorted(failed - exceptions)) or 'none'}")
    sys.exit(1 if failed - exceptions else 0)


if __name__ == "__main__":
    main()
