"""A Debian of its own in a folder: dpkg, what is essential, and what packages depend on, nothing else.

Its files are those of this machine's packages, as dpkg lists them, and so is its database. So it takes a second instead of a
download, and what a package forgets to depend on is not there. Commands run in it in namespaces of their own: nothing that
they start or mount outlives them.
"""
import os
import re
import subprocess
from pathlib import Path

DPKG = Path("/var/lib/dpkg")
MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
# Others write in these meanwhile, and tar fails for a folder that changes while it is read: they are made, not copied.
BUSY = ("tmp", "var/tmp", "run")
# A folder of 17,000 headers is mounted from the machine, read-only, not copied.
LARGE = "/usr/include/boost"

ENTER = """
set -e
for name in null zero urandom random full tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
mount -t tmpfs shm "$1/dev/shm"
mount -t proc proc "$1/proc"
if [ -d "$1$2" ]; then mount --bind "$2" "$1$2"; mount -o remount,bind,ro "$1$2"; fi
root=$1; shift 2
exec chroot "$root" "$@"
"""


def read_database():
    """Package -> its fields, of what is installed here; a virtual name -> one that provides it."""
    packages, provided = {}, {}
    for stanza in (DPKG / "status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^(\S+): (.*)$", stanza, re.M))
        if fields.get("Status") == "install ok installed":
            packages[fields["Package"]] = {**fields, "stanza": stanza}
            for name in re.findall(r"([\w.+-]+)(?: \([^)]*\))?(?:, |$)", fields.get("Provides", "")):
                provided.setdefault(name, fields["Package"])
    return packages, provided


class FreshRoot:
    def __init__(self, folder):
        self.folder = folder
        self.packages, self.provided = read_database()
        self.present = set()
        for name in MERGED:
            if Path("/", name).is_symlink():
                (folder / f"usr/{name}").mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(f"usr/{name}")
        for name in (*BUSY, "dev/shm", "proc", "sys", "root", "var/lib/dpkg/info", "var/lib/dpkg/updates",
                     "var/lib/dpkg/triggers", "var/lib/dpkg/alternatives", "var/log", "var/cache", "etc"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp"):
            (folder / name).chmod(0o1777)
        for path, text in (("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"), ("etc/group", "root:x:0:\n"),
                           ("etc/hosts", f"127.0.0.1 localhost {os.uname().nodename}\n"),
                           ("var/lib/dpkg/status", ""), ("var/lib/dpkg/available", ""),
                           ("var/lib/dpkg/info/format", "1\n")):
            (folder / path).write_text(text)
        self.add([name for name, fields in self.packages.items() if fields.get("Essential") == "yes"])

    def closure(self, names):
        """These, and what they depend on, of this machine's packages. Names of others (our own) are left out."""
        found, open_names = set(), list(names)
        while open_names:
            name = open_names.pop()
            name = name if name in self.packages else self.provided.get(name)
            if name is None or name in found:
                continue
            found.add(name)
            for field in ("Depends", "Pre-Depends"):
                open_names += self.chosen(self.packages[name].get(field, ""))
        return found

    def chosen(self, depends):
        """Of "a (>= 1), b | c" what this machine has."""
        for one in filter(None, depends.split(",")):
            alternatives = [re.match(r"\s*([\w.+-]+)", part)[1] for part in one.split("|")]
            here = [name for name in alternatives if name in self.packages or name in self.provided]
            yield (here or alternatives)[0]

    def add(self, names):
        """Brings packages of this machine in, with what they depend on."""
        fresh = sorted(self.closure(names) - self.present)
        paths = []
        for name in fresh:
            lists = [path for path in (DPKG / "info" / f"{name}.list",
                                       DPKG / "info" / f"{name}:{self.packages[name]['Architecture']}.list") if path.exists()]
            lines = lists[0].read_text().splitlines()
            (self.folder / "var/lib/dpkg/info" / lists[0].name).write_text("\n".join(lines) + "\n")
            paths += [line[1:] for line in lines if line.startswith(LARGE) is False and line[1:] not in ("", ".", *MERGED, *BUSY)]
            if any(line == LARGE for line in lines):
                (self.folder / LARGE[1:]).mkdir(parents=True, exist_ok=True)
        there = "\0".join(path for path in paths if os.path.lexists(f"/{path}"))
        tar = subprocess.Popen(["tar", "-C", "/", "--no-recursion", "--null", "-T", "-", "-cf", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
        unpacked = subprocess.Popen(["tar", "-C", str(self.folder), "--keep-directory-symlink", "-xf", "-"], stdin=tar.stdout)
        tar.stdout.close()
        tar.stdin.write(there.encode())
        tar.stdin.close()
        if tar.wait() or unpacked.wait():
            raise RuntimeError(f"the files of {', '.join(fresh)} could not be copied")
        with open(self.folder / "var/lib/dpkg/status", "a") as status:
            status.writelines(self.packages[name]["stanza"].strip() + "\n\n" for name in fresh)
        self.present |= set(fresh)
        self.run("/sbin/ldconfig")

    def command(self, *words):
        """What runs these words in it: as process 1 of a namespace, so that all ends with it, and it with this test."""
        return ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--ipc", "setpriv",
                "--pdeathsig", "KILL", "sh", "-c", ENTER, "enter", str(self.folder), LARGE, *map(str, words)]

    def run(self, *words, check=True, timeout=400, **environment):
        terms = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", **environment}
        done = subprocess.run(self.command(*words), env=terms, text=True, capture_output=True, timeout=timeout, cwd="/")
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def packaged(self):
        """All that dpkg knows to be of a package, under the names that files() gives."""
        found = set()
        for path in (self.folder / "var/lib/dpkg/info").glob("*.list"):
            found |= set(path.read_text().split("\n"))
        merged = re.compile(rf"^/({'|'.join(MERGED)})/")
        return {merged.sub(r"/usr/\1/", path) for path in found}

    def files(self):
        """All that is in it, but for what dpkg and ldconfig keep about themselves."""
        own = re.compile(r"/(var/lib/dpkg|var/log|var/cache/ldconfig|proc|dev|tmp)(/|$)|/etc/ld\.so\.cache$")
        found = set()
        for folder, folders, names in os.walk(self.folder):
            found |= {os.path.join(folder, name)[len(str(self.folder)):] for name in (*folders, *names)}
        return {path for path in found if not own.match(path)}
