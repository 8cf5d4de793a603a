"""torch's LaunchConfig and entrypoint as options of muster. Fields that an older torch does not have count as unset."""

import dataclasses
import ipaddress
import os
import signal
import sys
import uuid
from typing import Any, Optional

# Without these fields it is another interface.
NEEDED = {"min_nodes", "max_nodes", "nproc_per_node", "run_id", "role", "rdzv_backend", "rdzv_endpoint", "rdzv_configs", "max_restarts"}
_KNOWN = NEEDED | {"logs_specs", "rdzv_timeout", "monitor_interval", "start_method", "log_line_prefix_template", "local_addr", "event_log_handler",
                   "numa_options", "signals_to_handle", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank",
                   "shutdown_timeout", "tee", "redirects", "log_dir"}
_BACKENDS = ("c10d", "static", "etcd", "etcd-v2")
_EVENT_HANDLERS = ("null", "dynamic_rendezvous", "console")


class Refused(Exception):
    """What muster cannot do; torch's own launcher does it."""


def of(config: Any) -> list[str]:
    """muster's options. Raises Refused."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in _KNOWN and value and value != field.default:
            raise Refused(f"muster does not know LaunchConfig.{field.name}={value!r}")
    nodes = str(config.min_nodes) if config.min_nodes == config.max_nodes else f"{config.min_nodes}:{config.max_nodes}"
    words = {"nnodes": nodes, "nproc-per-node": config.nproc_per_node, "max-restarts": config.max_restarts, "role": config.role,
             "local-addr": _get(config, "local_addr"), "shutdown-timeout": _get(config, "shutdown_timeout"),
             "signals-to-handle": _get(config, "signals_to_handle"),
             "duplicate-stdout-filters": _filters(_get(config, "duplicate_stdout_filters")),
             "duplicate-stderr-filters": _filters(_get(config, "duplicate_stderr_filters")),
             "event-log-handler": _event_handler(_get(config, "event_log_handler")),
             "numa-binding": _numa(_get(config, "numa_options")), **_logs(_get(config, "logs_specs")), **_rendezvous(config)}
    flags = ["--virtual-local-rank"] if _get(config, "virtual_local_rank") else []
    return flags + [f"--{name}={value}" for name, value in words.items() if value not in (None, "")]


def _get(config: Any, name: str) -> Any:
    return getattr(config, name, None)


def _rendezvous(config: Any) -> dict[str, Any]:
    if config.rdzv_backend not in _BACKENDS:
        raise Refused(f"muster does not know the rendezvous back end {config.rdzv_backend!r} (it has {', '.join(_BACKENDS)})")
    conf = dict(config.rdzv_configs)
    rank = conf.pop("rank", None)
    if config.max_nodes == 1:
        rank = 0  # whatever PET_NODE_RANK says
    if config.rdzv_backend == "c10d":
        conf.pop("timeout", None)  # every LaunchConfig has one, and torch's c10d looks at join_timeout alone
    # torch gives a job without an id one of its own. Without one, and without an endpoint, muster would take this node for one
    # of the job that is at the default place, and keep it as a spare.
    endpoint = _endpoint(config.rdzv_endpoint or "")
    if not endpoint and config.rdzv_backend == "c10d":
        endpoint = "localhost:0" if config.max_nodes == 1 else "localhost:29400"
    return {"rdzv-backend": config.rdzv_backend, "rdzv-endpoint": endpoint, "rdzv-id": config.run_id or uuid.uuid4().hex, "node-rank": rank,
            "rdzv-conf": ",".join(f"{key}={value}" for key, value in conf.items())}


def _endpoint(text: str) -> str:
    """torch takes what is behind the last colon for the port, behind an IPv6 address, too; and makes HOST:PORT of --master-addr."""
    host, _, port = text.rpartition(":")
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return text
    return f"[{host}]:{port}"


def _logs(specs: Any) -> dict[str, Any]:
    if specs is None:
        return {}
    try:
        if type(specs).__name__ != "DefaultLogsSpecs" or not type(specs).__module__.startswith("torch."):
            raise Refused(f"muster does not know the log files of {type(specs).__name__}")
        ranks = specs._local_ranks_filter
        return {"log-dir": specs._root_log_dir, "redirects": _streams(specs._redirects), "tee": _streams(specs._tee),
                "local-ranks-filter": ",".join(map(str, sorted(ranks))) if ranks else None}
    except AttributeError as error:
        raise Refused(f"muster does not know DefaultLogsSpecs of this torch ({error})") from error


def _streams(mask: Any) -> str:
    """torch's Std, or one for each local rank."""
    return ",".join(f"{rank}:{int(value)}" for rank, value in mask.items()) if isinstance(mask, dict) else str(int(mask))


def _filters(words: Any) -> Optional[str]:
    return ",".join(word.replace(",", ",,") for word in words) if words else None


def _event_handler(name: Optional[str]) -> Optional[str]:
    if name is not None and name not in _EVENT_HANDLERS:
        raise Refused(f"muster does not know the event log handler {name!r} (it has {', '.join(_EVENT_HANDLERS)})")
    return name


def _numa(options: Any) -> Optional[str]:
    return None if options is None else str(options.affinity_mode.value)


def environment(config: Any) -> dict[str, str]:
    template = _get(config, "log_line_prefix_template")
    return {} if template is None else {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": template}


def signals(config: Any) -> list[signal.Signals]:
    """Those that stop the job. muster itself refuses a name that is none."""
    names = (_get(config, "signals_to_handle") or "SIGTERM,SIGINT,SIGHUP,SIGQUIT").split(",")
    return [signal.Signals[name.strip()] for name in names if name.strip() in signal.Signals.__members__]


def program(entrypoint: Any, arguments: list[Any]) -> Optional[tuple[list[str], dict[str, str]]]:
    """(what follows muster's options, variables) of a command; None for a function."""
    words = [str(argument) for argument in arguments]
    if not isinstance(entrypoint, str):
        is_path = getattr(entrypoint, "__module__", "") == "torch.distributed.run" and entrypoint.__name__ == "run_script_path"
        return (["--run-path", *words], {"PYTHON_EXEC": _python()}) if is_path else None
    script = words[1:]
    module = script[:1] == ["-m"]
    script = script[1:] if module else script
    # What torch.distributed.run makes of a script. As such, muster knows which file it is.
    if entrypoint == _python() and words[:1] == ["-u"] and script and not script[0].startswith("-"):
        return ["--module"] * module + script, {"PYTHON_EXEC": entrypoint}
    return ["--no-python", entrypoint, *words], {}


def _python() -> str:
    return os.environ.get("PYTHON_EXEC", sys.executable)


def name(entrypoint: Any, arguments: list[Any]) -> str:
    """As torch names the job in ChildFailedError."""
    if not isinstance(entrypoint, str):
        return str(getattr(entrypoint, "__name__", ""))
    if entrypoint != sys.executable:
        return entrypoint
    return next((word for word in map(str, arguments) if not word.startswith("-")), "")
