"""What an installed program or library lacks of what makes a memory error harder to exploit."""
import re
import subprocess


def hardening_faults(path):
    """A list of sentences; empty for a file that has all of it."""
    seen = subprocess.run(["readelf", "-W", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", str(path)],
                          text=True, capture_output=True, check=True).stdout
    wanted = {
        "it is not position-independent": re.search(r"^\s*Type:\s+DYN\b", seen, re.M),
        "its relocations stay writable (no GNU_RELRO)": re.search(r"^\s*GNU_RELRO\b", seen, re.M),
        "it binds lazily, so its table of functions stays writable (no BIND_NOW)": re.search(r"\b(BIND_NOW|FLAGS_1.*\bNOW)\b", seen),
        "its stack is executable": re.search(r"^\s*GNU_STACK\s.*\bRW\s", seen, re.M),
        "no function checks its stack (-fstack-protector-strong)": "__stack_chk_fail" in seen,
    }
    return [fault for fault, is_there in wanted.items() if not is_there]
