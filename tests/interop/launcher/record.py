"""The worker of the golden test: writes down how it was started."""
import json
import os
import sys
import time

folder = os.environ["GOLDEN_OUT"]
count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "none")
# Under --virtual-local-rank LOCAL_RANK is 0 for everybody; RANK never is.
name = os.path.join(folder, f"{os.environ['RANK']}.{count}.json")
facts = {
    "argv": getattr(sys, "orig_argv", []),
    "seen_argv": sys.argv,
    "environment": dict(os.environ),
    "directory": os.getcwd(),
    "unbuffered": sys.stdout.write_through,
    "module": __name__,
    # The command line of a process stays that of the standby process that it was.
    "is_warm": b"stand_by" in open("/proc/self/cmdline", "rb").read(),
}
with open(name + ".part", "w") as file:
    json.dump(facts, file)
os.rename(name + ".part", name)
# In one write each: with -u, print() writes the line's end apart, and workers that share a terminal would mix.
os.write(1, f"out of rank {os.environ['RANK']}\n".encode())
os.write(2, f"err of rank {os.environ['RANK']}\n".encode())
if "--fail-once" in sys.argv and count == "0":
    # Only when all workers have written: else this failure would stop one that has not.
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if len([one for one in os.listdir(folder) if one.endswith(".0.json")]) == int(os.environ["WORLD_SIZE"]):
            break
        time.sleep(0.005)
    sys.exit(3)
if "--fail" in sys.argv:
    sys.exit(7)
