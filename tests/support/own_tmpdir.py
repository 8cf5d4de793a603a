"""Imported, it gives the test, and all that the test starts, a TMPDIR that goes with the test: a launcher that is killed or
whose worker has failed leaves its log directory there, and some tools leave more."""
import atexit
import os
import pathlib
import shutil
import sys
import tempfile
import time

import own_processes  # noqa: F401


def take_away(folder, owner):
    if os.getpid() != owner:  # a child that was forked
        return
    limit = time.monotonic() + 5
    shutil.rmtree(folder, ignore_errors=True)
    # What outlives a killed launcher for a moment may make a file between a folder's listing and its end.
    while os.path.exists(folder) and time.monotonic() < limit:
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


# Its name is the test's, for whoever finds it left.
folder = tempfile.mkdtemp(prefix=pathlib.Path(sys.argv[0]).stem + "-")
os.chmod(folder, 0o1777)  # for other users, too, as /tmp is
os.environ["TMPDIR"] = tempfile.tempdir = folder
atexit.register(take_away, folder, os.getpid())
