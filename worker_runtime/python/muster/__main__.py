"""`python -m muster ...` is the launcher: it becomes the program `muster`."""

import os
import shutil
import sys
from pathlib import Path
from typing import Optional


def find_program() -> Optional[str]:
    """Beside this Python, under the prefix of the package, in a build tree of the repository, else in PATH."""
    folder = Path(__file__).resolve().parents[1]  # PREFIX/lib/python3/dist-packages, or worker_runtime/python
    repository = folder.parents[1]
    is_repository = (repository / "CMakePresets.json").exists()
    near = ([repository / "build/release/bin", repository / "build/default/bin"] if is_repository
            else [folder.parents[2] / "bin"])
    places = [Path(sys.executable).parent, *near]
    found = next((place / "muster" for place in places if os.access(place / "muster", os.X_OK)), None)
    return str(found) if found else shutil.which("muster")


def main():
    program = find_program()
    if program is None:
        sys.exit("python -m muster: there is no program muster beside this Python, nor in PATH; install it, or add its "
                 "directory to PATH")
    # Workers run in the Python that was asked, unless the environment names another.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
