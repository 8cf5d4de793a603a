"""An entrypoint that is a function: pickled with its arguments, called in each worker, and its values brought back.

As a program it is the worker; then it is run by its path, and imports nothing of muster. As torch's "spawn" does, each worker is a
new interpreter that imports the main module under the name __mp_main__.
"""

import hashlib
import io
import os
import pickle
import string
import sys
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any

CALL = "call"


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.is_shared():
            raise pickle.PicklingError("a tensor in shared memory would be copied")
        return NotImplemented


def pack(entrypoint: Any, arguments: list[Any], config: Any, folder: str) -> tuple[list[str], dict[str, str]]:
    """(what follows muster's options, variables). Raises Refused.

    The agents compare the program's name and its arguments between nodes. So the folder, which each node has its own of, is in
    neither: the program is a link in it, named as the function, and the one argument stands for the function and its arguments.
    """
    from muster.compat.options import Refused

    name = getattr(entrypoint, "__qualname__", repr(entrypoint))
    if not callable(entrypoint):
        raise Refused(f"the entrypoint {name} is neither a command nor a function")
    if config.start_method == "fork":
        raise Refused(f"with start_method='fork' the function {name} may need the memory of this process")
    preparation = spawn.get_preparation_data("worker")
    for key in ("authkey", "start_method"):  # a secret of this process, and the workers' own choice
        preparation.pop(key, None)
    try:
        call = io.BytesIO()
        _Pickler(call).dump((entrypoint, arguments))
        with open(Path(folder, CALL), "wb") as file:
            pickle.dump(preparation, file)
            file.write(call.getbuffer())
    except Exception as error:  # pickle raises whatever an object's own functions do
        raise Refused(f"the function {name} and its arguments cannot be pickled ({error})") from error
    program = Path(folder, getattr(entrypoint, "__name__", type(entrypoint).__name__) + ".py")
    program.symlink_to(Path(__file__).absolute())
    return [str(program), hashlib.sha256(call.getbuffer()).hexdigest()[:12]], {"PYTHON_EXEC": sys.executable}


def results(folder: str) -> dict[int, Any]:
    """Global rank -> value, of this node's workers in the last round."""
    found: dict[tuple[int, int], Path] = {}
    for path in Path(folder).glob("value.*.*"):  # value.py is the program of a function with that name
        found[int(path.suffixes[0][1:]), int(path.suffixes[1][1:])] = path
    last = max((key[0] for key in found), default=0)
    values = {}
    for key in sorted(found):
        if key[0] == last:
            with found[key].open("rb") as file:
                values[key[1]] = pickle.load(file)
    return values


def main() -> None:
    folder = Path(sys.argv[0]).parent
    with open(folder / CALL, "rb") as file:
        # multiprocessing's mark: a main module that starts a job as it is imported is refused, instead of starting jobs for ever.
        process.current_process()._inheriting = True  # type: ignore[attr-defined]
        try:
            spawn.prepare(pickle.load(file))
            function, arguments = pickle.load(file)
        finally:
            del process.current_process()._inheriting  # type: ignore[attr-defined]
    from torch.distributed.elastic.multiprocessing.errors import record

    arguments = [string.Template(value).safe_substitute(local_rank=os.environ["LOCAL_RANK"]) if isinstance(value, str) else value
                 for value in arguments]
    value = record(function)(*arguments)
    path = folder / f"value.{os.environ['MUSTER_ROUND']}.{os.environ['RANK']}"
    unfinished = folder / f"{os.environ['RANK']}.unfinished"
    with open(unfinished, "wb") as file:
        pickle.dump(value, file)
    unfinished.rename(path)


if __name__ == "__main__":
    main()
