"""What an installed program or library lacks of what makes a memory error harder to exploit."""
import json
import platform
import re
import subprocess
from pathlib import Path


def readelf(path, *what):
    return subprocess.run(["readelf", "-W", *what, str(path)], text=True, capture_output=True, check=True).stdout


def hardening_faults(path):
    """A list of sentences; empty for a file that has all of it."""
    seen = readelf(path, "--file-header", "--program-headers", "--dynamic", "--dyn-syms")
    checked_calls = set(re.findall(r"\b__\w+_chk\b", seen))
    wanted = {
        "it is not position-independent": re.search(r"^\s*Type:\s+DYN\b", seen, re.M),
        "its relocations stay writable (no GNU_RELRO)": re.search(r"^\s*GNU_RELRO\b", seen, re.M),
        "it binds lazily, so its table of functions stays writable (no BIND_NOW)": re.search(r"\b(BIND_NOW|FLAGS_1.*\bNOW)\b", seen),
        "its stack is executable": re.search(r"^\s*GNU_STACK\s.*\bRW\s", seen, re.M),
        "no function checks its stack (-fstack-protector-strong)": "__stack_chk_fail" in seen,
        "no call checks the size of its buffer (-D_FORTIFY_SOURCE)": checked_calls,
        "indirect jumps may go anywhere (-fcf-protection)": has_cet(path) or not start_files_have_cet(),
    }
    return [fault for fault, is_there in wanted.items() if not is_there]


def has_cet(path):
    """On x86: the file says that all of its code goes along with IBT and SHSTK. True for every file elsewhere."""
    if platform.machine() not in ("x86_64", "i686"):
        return True
    return re.search(r"x86 feature:.*\bIBT\b.*\bSHSTK\b", readelf(path, "--notes")) is not None


def start_files_have_cet():
    """The C library's own: one object without it, and the linker drops it for the whole program. (Debian 12's have none.)"""
    found = subprocess.run(["cc", "-print-file-name=crti.o"], text=True, capture_output=True, check=True).stdout.strip()
    return has_cet(found)


PRODUCT = ("rendezvous", "agent", "launcher", "worker_runtime")


def objects_without_cet(build):
    """The product's object files that would take it from every program that they are part of."""
    return [str(one.relative_to(build)) for part in PRODUCT for one in sorted(Path(build, part).rglob("*.o"))
            if "/examples/" not in str(one) and not has_cet(one)]


def objects_without_assertions(build):
    """The product's object files in which containers do not check their bounds. A binary does not show it."""
    commands = [entry["command"] for entry in json.loads(Path(build, "compile_commands.json").read_text())]
    objects = {re.search(r" -o (\S+)", command)[1]: command for command in commands}
    product = {name: command for name, command in objects.items()
               if name.startswith(tuple(f"{part}/" for part in PRODUCT)) and "/examples/" not in name}
    assert product, "no object file of the product is in compile_commands.json"
    return sorted(name for name, command in product.items() if "-D_GLIBCXX_ASSERTIONS" not in command.split())
