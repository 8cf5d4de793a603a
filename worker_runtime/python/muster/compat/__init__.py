"""PyTorch's Python API that starts jobs, with muster in torchrun's place.

torch.distributed.run.main() and run(), launcher.api.elastic_launch and launch_agent() all end in launch_agent(config,
entrypoint, args). attach() replaces that one function, so callers keep torch's options, exceptions and return values.
Whatever muster cannot do is left to torch's own launcher, and one line says so.
"""

import dataclasses
import functools
import inspect
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from muster.compat import function, launcher, options
from muster.compat.options import Refused

__all__ = ["attach"]


def attach(api: ModuleType) -> None:
    """Makes torch.distributed.launcher.api start muster, if it is the interface that is known here."""
    problem = _problem(api)
    if problem:
        _tell(problem)
    else:
        api.launch_agent = _with_muster(api.launch_agent)  # type: ignore[attr-defined]


def _problem(api: ModuleType) -> str:
    """Empty if this module looks as torch's from 2.5 on does."""
    try:
        parameters = list(inspect.signature(api.launch_agent).parameters)[:3]
        fields = {field.name for field in dataclasses.fields(api.LaunchConfig)}
        uses = api.elastic_launch.__call__.__code__.co_names
    except (AttributeError, TypeError, ValueError) as error:
        return f"muster does not know the interface of this torch ({error})"
    if parameters != ["config", "entrypoint", "args"] or "launch_agent" not in uses or not options.NEEDED <= fields:
        return "muster does not know the interface of this torch (torch.distributed.launcher.api)"
    return ""


def _with_muster(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def launch_agent(config: Any, entrypoint: Any, args: Any, *more: Any, **named: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="muster-compat-") as folder:
            try:
                if any(value is not None for value in (*more, *named.values())):
                    raise Refused("muster has no health check server")
                words = options.of(config)
                program, environment = options.program(entrypoint, list(args)) or function.pack(entrypoint, list(args), config, folder)
                command = [launcher.program(), *words, *program]
            except Refused as why:
                _tell(str(why))
                return original(config, entrypoint, args, *more, **named)
            launcher.run(command, {**os.environ, **environment, **options.environment(config)}, options.signals(config),
                         options.name(entrypoint, list(args)), folder)
            if Path(folder, function.CALL).exists():
                return function.results(folder)
            # A command has no values. The ranks of one node are known.
            return dict.fromkeys(range(config.nproc_per_node)) if config.max_nodes == 1 else {}

    return launch_agent


def _tell(why: str) -> None:
    from muster_torch import tell

    tell(f"muster: PyTorch's own launcher is used: {why}")
