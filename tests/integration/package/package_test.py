#!/usr/bin/env python3
"""The packages in a Debian that has nothing else: each is installed with what it depends on and no more, muster runs, a C++
program is built with find_package(muster) and one in C with pkg-config, all is removed, and nothing is left. Also: an
installation below another prefix.

Needs root (chroot and namespaces), dpkg and lintian. MUSTER_BUILD is the build tree.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fresh_root import FreshRoot
from hardening import hardening_faults, objects_without_assertions, objects_without_cet
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401

BUILD = Path(os.environ["MUSTER_BUILD"])
HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
PACKAGES = {"muster", "libmuster1", "libmuster-dev", "python3-muster", "libmuster-nccl"}
OLDER = "0.0.9"
ADMIN_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
RANKS = ["rank 0 of 2", "rank 1 of 2"]

JOB = """#!/bin/sh
echo "rank $RANK of $WORLD_SIZE"
"""
WAITING_JOB = """#!/bin/sh
touch /tmp/here-$RANK
while ! [ -e /tmp/upgraded ]; do sleep 0.05; done
echo "rank $RANK of $WORLD_SIZE"
"""
SUM = """import array, muster, sys
context = muster.Context()
values = array.array("f", [context.rank + 1])
context.world.all_reduce(values)
sys.stdout.write(f"rank {context.rank} of {context.world_size}: {values[0]:g}\\n")
"""


def missing_part():
    """Why the real thing cannot be had here, or nothing."""
    if os.geteuid() != 0:
        return "root is needed for chroot"
    for program in ("cpack", "dpkg", "dpkg-shlibdeps", "lintian", "systemctl", "unshare", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is not installed (scripts/setup --tests)"
    if not (BUILD / "lib/libmuster_nccl.so").exists():
        return "the NCCL plugin is not built (scripts/setup --tests)"
    return ""


def output_of(*words):
    return subprocess.run(list(map(str, words)), text=True, capture_output=True, check=True).stdout


def lintian(debs):
    """What it says, where there is an error in it; warnings alone are none."""
    done = subprocess.run(["lintian", "--allow-root", "--no-cfg", "--profile", "debian", "--fail-on", "error",
                           *map(str, debs)], text=True, capture_output=True)
    return done.stdout + done.stderr if done.returncode else ""


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="muster-package-")
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = Path(cls.scratch.name)
        folder.chmod(0o755)
        # gzip in the place of xz: a quarter of the time, and the same files in it.
        subprocess.run(["cpack", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(folder / "packages"),
                        "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"], check=True, capture_output=True, text=True)
        cls.debs = {path.name.split("_")[0]: path for path in (folder / "packages").glob("*.deb")}
        # What takes time and needs nothing of the others runs beside them.
        cls.beside = ThreadPoolExecutor(1)
        cls.addClassCleanup(cls.beside.shutdown)
        cls.complaints = cls.beside.submit(lintian, cls.debs.values())
        (folder / "root").mkdir()
        cls.root = FreshRoot(folder / "root")

    def install(self, *names):
        """Each with its own dependencies alone; dpkg itself looks whether they are there."""
        debs = []
        for name in names:
            depends = output_of("dpkg-deb", "-f", self.debs[name], "Depends").strip()
            self.root.add(self.root.chosen(depends))
            shutil.copy(self.debs[name], self.root.folder / "tmp")
            debs.append(f"/tmp/{self.debs[name].name}")
        self.root.run("dpkg", "--install", *debs)
        for name in names:
            self.check_libraries(name)

    def check_libraries(self, name):
        """Every library that a program of the package wants is there."""
        paths = self.root.run("dpkg", "-L", name).stdout.split()
        programs = [path for path in paths if self.is_elf(path)]
        if programs:
            self.assertNotIn("not found", self.root.run("ldd", *programs).stdout, f"{name}: a package is missing in Depends")
        for path in programs:
            self.assertEqual(hardening_faults(self.root.folder / path[1:]), [], path)

    def is_elf(self, path):
        real = self.root.folder / path[1:]
        if not real.is_file():
            return False
        with real.open("rb") as file:
            return file.read(4) == b"\x7fELF"

    def under_muster(self, *words, **environment):
        done = self.root.run("muster", "--standalone", "--nproc-per-node=2", *words, **environment)
        return sorted(done.stdout.splitlines()), done.stderr

    def test_1_there_are_the_packages_and_lintian_finds_no_error(self):
        self.assertEqual(set(self.debs), PACKAGES)
        for deb in self.debs.values():
            listed = output_of("dpkg-deb", "-c", deb)
            found = [path for path in re.findall(r"(?i)\S*(?:test|catch2|digits)\S*", listed)
                     if not path.endswith("/muster-gpu-test")]  # which tests GPUs
            self.assertEqual(found, [], f"{deb.name} holds something of the tests or the examples")
        self.assertEqual(self.complaints.result(), "")

    def test_1_no_object_takes_control_flow_protection_from_the_programs(self):
        self.assertEqual(objects_without_cet(BUILD), [])

    def test_1_every_object_checks_the_bounds_of_containers(self):
        self.assertEqual(objects_without_assertions(BUILD), [])

    def test_2_muster_runs_where_there_is_no_compiler_and_no_build_tree(self):
        # Where musterd.service keeps the jobs' state; the package's end takes that, and leaves systemd's folder.
        (self.root.folder / "var/lib/private").mkdir()
        type(self).before = self.root.files()
        self.install("muster")
        for program in ("gcc", "g++", "cc", "cmake", "python3"):
            self.assertEqual(self.root.run("which", program, check=False).stdout, "")
        version = self.root.run("muster", "--version").stdout
        self.assertRegex(version, r"^muster 0\.\d+\.\d+\n  commit +\S+.*\n  compiler +GNU 1\d.*\n  libraries +Boost 1\.\d+")
        self.assertNotIn(str(BUILD), version)
        for program in ("musterd", "muster-stacks", "muster doctor", "muster drain", "muster checkpoint", "muster fault", "muster flight", "muster key", "muster logs", "muster status"):
            self.assertIn("muster", self.root.run(*program.split(), "--help").stdout)
        (self.root.folder / "tmp/job.sh").write_text(JOB)
        (self.root.folder / "tmp/job.sh").chmod(0o755)
        self.assertEqual(self.under_muster("--no-python", "/tmp/job.sh")[0], RANKS)

    def test_3_an_agent_finds_its_helpers_where_they_are_installed(self):
        helper = self.root.folder / "usr/libexec/muster/muster-gpus"
        real = helper.rename(helper.with_suffix(".real"))
        helper.write_text("#!/bin/sh\ntouch /tmp/helper-ran\n")
        helper.chmod(0o755)
        try:
            self.under_muster("--no-python", "/tmp/job.sh", MUSTER_NVML_LIBRARY="/nothing.so")
        finally:
            real.rename(helper)
        self.assertTrue((self.root.folder / "tmp/helper-ran").exists())

    def test_4_the_python_module_and_the_plugin_work(self):
        self.install("libmuster1", "libmuster-nccl", "python3-muster")
        (self.root.folder / "tmp/sum.py").write_text(SUM)
        self.assertEqual(self.under_muster("/tmp/sum.py")[0], [f"{rank}: 3" for rank in RANKS])
        # Neither CUDA nor NCCL is here: the plugin is found and says so.
        done = self.root.run("muster", "--standalone", "/tmp/sum.py", check=False, MUSTER_TRANSPORT="nccl")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "libcudart|libnccl|CUDA")
        self.assertNotIn("cannot load the NCCL plugin", done.stderr)

    def older(self, name):
        """A package of an earlier version: another conffile, and a file that is in no later one. Its name in the root."""
        made = Path(self.scratch.name) / "older" / name
        made.parent.mkdir(exist_ok=True)
        output_of("dpkg-deb", "--raw-extract", self.debs[name], made)
        control = made / "DEBIAN/control"
        control.write_text(control.read_text().replace(output_of("dpkg-deb", "-f", self.debs[name], "Version").strip(), OLDER))
        folder = made / "usr/share/doc" / name
        (folder / "of-old").write_text("gone since\n")
        for path in made.glob("etc/muster/*.conf"):
            path.write_text("# as it was\n")
        deb = self.root.folder / "tmp" / f"{name}_{OLDER}.deb"
        output_of("dpkg-deb", "--root-owner-group", "-Znone", "--build", made, deb)
        return f"/tmp/{deb.name}"

    def dpkg(self, *words, systemd=False):
        """The calls to systemd that the packages' scripts make, where one runs, as lines."""
        calls = self.root.folder / "tmp/calls"
        calls.write_text("")
        if systemd:
            (self.root.folder / "tmp/played").mkdir(exist_ok=True)
            for program in ("systemctl", "deb-systemd-invoke"):
                path = self.root.folder / "tmp/played" / program
                path.write_text('#!/bin/sh\necho "${0##*/} $*" >>/tmp/calls\n')
                path.chmod(0o755)
            (self.root.folder / "run/systemd/system").mkdir(parents=True)
        try:
            self.root.run("dpkg", "--force-confold", *words, PATH=f"/tmp/played:{ADMIN_PATH}")
        finally:
            if systemd:
                shutil.rmtree(self.root.folder / "run/systemd")
        return calls.read_text().splitlines()

    def test_5_an_upgrade_leaves_jobs_and_what_an_administrator_wrote(self):
        names = ("muster", "libmuster1", "libmuster-nccl", "python3-muster")
        conf = self.root.folder / "etc/muster/musterd.conf"
        present = conf.read_text()
        conf.unlink()
        older = [self.older(name) for name in names]
        self.dpkg("--force-confmiss", "--install", *older)
        self.assertEqual(conf.read_text(), "# as it was\n")
        listed = self.root.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n", *names).stdout.splitlines()
        self.assertEqual(sorted(listed), sorted(f"{name} {OLDER} install ok installed" for name in names))
        # A job of the old version goes on over the upgrade, to its end.
        (self.root.folder / "tmp/wait.sh").write_text(WAITING_JOB)
        (self.root.folder / "tmp/wait.sh").chmod(0o755)
        job = subprocess.Popen(self.root.command("muster", "--standalone", "--nproc-per-node=2", "--no-python", "/tmp/wait.sh"),
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", env={"PATH": ADMIN_PATH})
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        deadline = time.monotonic() + 60
        while len(list(self.root.folder.glob("tmp/here-*"))) < 2:
            if job.poll() is not None or time.monotonic() > deadline:
                job.kill()
                self.fail(f"no workers:\n{job.communicate()[0]}")
            time.sleep(0.02)  # between two looks
        calls = self.dpkg("--install", *(f"/tmp/{self.debs[name].name}" for name in names), systemd=True)
        (self.root.folder / "tmp/upgraded").touch()
        said = job.communicate(timeout=60)[0]
        self.assertEqual((job.returncode, sorted(line for line in said.splitlines() if line.startswith("rank"))), (0, RANKS), said)
        self.assertEqual(set(calls), {"systemctl --system daemon-reload"}, "an upgrade stops nothing")
        self.assertEqual(conf.read_text(), present)
        self.assertEqual(list(self.root.folder.glob("usr/share/doc/*/of-old")), [])
        for name in names:
            self.assertTrue((self.root.folder / "usr/share/doc" / name / "SECURITY.md").exists(), name)
        self.assertEqual(self.under_muster("/tmp/sum.py")[0], [f"{rank}: 3" for rank in RANKS])
        conf.write_text("# changed\n")
        for debs in (older[:1], [f"/tmp/{self.debs['muster'].name}"]):
            self.dpkg("--install", *debs)
            self.assertEqual(conf.read_text(), "# changed\n")

    def test_5_programs_are_built_with_find_package_and_with_pkg_config(self):
        self.root.add(["g++", "cmake", "ninja-build", "pkg-config"])
        self.install("libmuster-dev")
        shutil.copytree(HERE / "program", self.root.folder / "tmp/program")
        self.root.run("cmake", "-G", "Ninja", "-S", "/tmp/program", "-B", "/tmp/built")
        self.root.run("cmake", "--build", "/tmp/built")
        over = "over shared memory"
        self.assertEqual(self.under_muster("--no-python", "/tmp/built/sum")[0], [f"{rank}: 3 {over}" for rank in RANKS])
        # The object is linked once more with what pkg-config says, and C is compiled with it.
        self.root.run("sh", "-ec", """cd /tmp
            g++ -o linked "$(find built -name 'sum.cpp.o')" $(pkg-config --libs muster)
            g++ -std=c++20 -fsyntax-only $(pkg-config --cflags muster) -include muster/communicator.h -x c++ /dev/null
            gcc -std=c99 -o version $(pkg-config --cflags muster-capi) program/version.c $(pkg-config --libs muster-capi)""")
        self.assertEqual(self.under_muster("--no-python", "/tmp/linked")[0], [f"{rank}: 3 {over}" for rank in RANKS])
        self.assertRegex(self.root.run("/tmp/version").stdout, r"^version (\d+) of the C API, made for \1\n$")

    def test_6_under_another_prefix_all_is_found_from_where_it_is(self):
        prefix = Path(self.scratch.name) / "prefix"
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix), "--strip"], check=True, capture_output=True)
        script = Path(self.scratch.name) / "sum.py"
        script.write_text(SUM)
        done = subprocess.run([str(prefix / "bin/muster"), "--standalone", "--nproc-per-node=2", str(script)], text=True,
                              env={"PATH": os.defpath, "PYTHONPATH": str(prefix / "lib/python3/dist-packages"),
                                   "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"{rank}: 3" for rank in RANKS], done.stderr)
        # What --torch-backend puts on the workers' path has nothing but what is ours.
        own = sorted(path.name.split("-")[0] for path in (prefix / "lib/muster/python").iterdir())
        self.assertEqual(own, ["muster", "muster", "muster_torch.py"])
        # Paths of whoever has built it tell a user nothing.
        self.assertEqual({path.name: place for path in prefix.rglob("*") if path.is_file()
                          for place in (SOURCE, BUILD) if bytes(place) in path.read_bytes()}, {})
        for unit in (prefix / "lib/systemd/system").glob("*.service"):
            self.assertIn(f"ExecStart={prefix}/bin/muster", unit.read_text())
        found = output_of("env", f"PKG_CONFIG_PATH={next(prefix.glob('lib/*/pkgconfig'))}", "pkg-config", "--cflags", "muster")
        self.assertIn(f"-I{prefix}/include", found)

    def test_7_nothing_is_left_when_they_are_removed(self):
        with_them = self.root.files()
        self.assertIn("/usr/bin/muster", with_them)
        (self.root.folder / "var/lib/private/muster").mkdir(exist_ok=True)
        links = self.enable("musterd.service", "muster-agent@train.service")
        self.assertEqual(links, {"multi-user.target.wants/musterd.service", "multi-user.target.wants/muster-agent@train.service",
                                 "sockets.target.wants/musterd.socket"})
        # Somebody else's.
        stays = self.root.folder / "etc/systemd/system/timers.target.wants/musterd.service"
        stays.parent.mkdir()
        stays.symlink_to("/usr/bin/env")
        calls = self.dpkg("--remove", "muster", systemd=True)
        self.assertEqual([line for line in calls if "stop" in line],
                         ["deb-systemd-invoke stop muster-agent@*.service musterd.socket musterd.service"])
        self.root.run("dpkg", "--purge", *PACKAGES)
        self.assertTrue(stays.is_symlink())
        shutil.rmtree(stays.parent)
        left = self.root.files() - self.before - self.root.packaged()
        # What Python has compiled of its own library, when it ran as root, is not ours.
        self.assertEqual({path for path in left if "muster" in path or "__pycache__" not in path}, set())

    def enable(self, *units):
        """As an administrator does it: the links below /etc/systemd/system."""
        output_of("systemctl", f"--root={self.root.folder}", "enable", *units)
        folder = self.root.folder / "etc/systemd/system"
        return {str(path.relative_to(folder)) for path in folder.glob("*.wants/muster*")}


if __name__ == "__main__":
    reason = missing_part()
    if reason:
        print(f"package: skipped: {reason}")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    unittest.main()
