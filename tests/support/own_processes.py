"""Imported, it makes whatever the test starts end with the test, also where the test itself is killed.

Every process that `subprocess` starts gets SIGKILL as its parent-death signal. The kernel sends that signal when the thread that
started the process ends, so what another thread starts is started by one thread that lives as long as the test. A change of user
takes the signal away: `as_user()` gives it back. SIGINT has its default: in a job that a script begins with `&` it is ignored.
"""
import concurrent.futures
import ctypes
import os
import signal
import subprocess
import threading

PR_SET_PDEATHSIG = 1
prctl = ctypes.CDLL(None).prctl
starter = concurrent.futures.ThreadPoolExecutor(max_workers=1)


def as_user(user):
    """What goes before a command that is to run as this user, in the group of the same number alone."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL"]


class Popen(subprocess.Popen):
    def __init__(self, *words, preexec_fn=None, **options):
        test = os.getpid()

        def begin():
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != test:
                os._exit(1)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if preexec_fn is not None:
                preexec_fn()

        def start():
            super(Popen, self).__init__(*words, preexec_fn=begin, **options)

        if threading.current_thread() is threading.main_thread():
            start()
        else:
            starter.submit(start).result()


subprocess.Popen = Popen
