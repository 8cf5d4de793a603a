"""A kernel of our own: user-mode Linux as a guest, a process like any other. Its root sets its own limits and control groups."""
import os
import pathlib
import shutil
import subprocess

KERNEL = shutil.which("linux.uml")
INIT = pathlib.Path(__file__).resolve().parent / "init.sh"


def run(folder, job, registers, memory, timeout):
    """Boots a guest with this much memory, which sees the host's files, read-only, and `folder` at /mnt. Its root runs the shell script
    `job` there, and the guest ends. Returns what the kernel and the job printed. `registers`: the library of registers.cpp."""
    if not KERNEL or not pathlib.Path(registers).exists():
        raise RuntimeError(f"a guest needs user-mode-linux (scripts/setup --tests) and {registers} (build the target guest_registers)")
    (folder / "job.sh").write_text(job)
    # In a namespace of processes, which ends with this process.
    unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    log = folder / "guest.log"

    def said(console):
        return (console or b"").decode(errors="replace") + (log.read_text() if log.exists() else "")
    try:
        console = subprocess.run([*unshare, KERNEL, f"mem={memory}", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", f"init={INIT}",
                                  f"FOLDER={folder}", "con=null", "con0=fd:0,fd:1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=timeout,
                                 env={**os.environ, "LD_PRELOAD": registers, "TMPDIR": "/dev/shm"})
    except subprocess.TimeoutExpired as expired:
        raise RuntimeError(f"the guest did not end within {timeout} s; it said: {said(expired.stdout)[-2000:]}") from expired
    return said(console.stdout)
