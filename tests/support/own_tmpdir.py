"""Imported, it gives the test, and all that the test starts, a TMPDIR that goes with the test: a launcher that is killed or
whose worker has failed leaves its log directory there, and some tools leave more."""
import atexit
import os
import shutil
import tempfile


def take_away(folder, owner):
    if os.getpid() == owner:  # not in a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


folder = tempfile.mkdtemp(prefix="muster-")
os.chmod(folder, 0o1777)  # for other users, too, as /tmp is
os.environ["TMPDIR"] = tempfile.tempdir = folder
atexit.register(take_away, folder, os.getpid())
