"""scripts/kubernetes/job.yaml grants no more than the job needs, and muster reads the secret as Kubernetes mounts it."""
import base64
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import own_tmpdir  # noqa: E402, F401
from own_processes import as_user  # noqa: E402

MUSTER = pathlib.Path(os.environ["MUSTER_BIN"]) / "muster"
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"


class KubernetesJob(unittest.TestCase):
    def test_the_job_has_a_secret_a_policy_and_no_rights(self):
        text = (SCRIPTS / "kubernetes/job.yaml").read_text()
        documents = {re.search(r"^kind: (.*)$", part, re.M).group(1): part for part in text.split("\n---\n")}
        self.assertEqual(set(documents), {"Service", "NetworkPolicy", "Job"})
        # Ingress only from pods with the label by which the policy selects its own pods.
        policy = documents["NetworkPolicy"]
        self.assertEqual(policy.count("job-name: train"), 2)
        self.assertEqual(len(re.findall(r"- [a-z]+(?:Selector|Block):", policy)), 1)
        job = documents["Job"]
        for line in ("runAsNonRoot: true", "allowPrivilegeEscalation: false", "drop: [ALL]", "type: RuntimeDefault",
                     "automountServiceAccountToken: false", "secretName: train", "defaultMode: 0400"):
            self.assertIn(line, job)
        # A pod that its node loses costs none of the tries that failures have.
        self.assertRegex(job, r"- action: Ignore .*\n +onPodConditions:\n +- type: DisruptionTarget\n")
        # The file is the Secret's key, below the mount; the guide and the file give the same commands for it.
        folder, key = re.search(r"name: MUSTER_SECRET_FILE\n +value: (.*)/(.*)\n", job).groups()
        self.assertIn(f"mountPath: {folder}\n", job)
        for command in (f"(umask 077; set -C; openssl rand -base64 32 >scripts/kubernetes/{key})", "kubectl apply -k scripts/kubernetes"):
            self.assertIn(command, text)
            self.assertIn(command, (SCRIPTS.parent / "launcher/GETTING_STARTED.md").read_text())

        # Without the file nothing is applied (below, with kubectl), and the Secret has the name that the job mounts.
        made = (SCRIPTS / "kubernetes/kustomization.yaml").read_text()
        self.assertIn("\nresources: [job.yaml]\n", made)
        self.assertIn(f"\nsecretGenerator:\n  - name: train\n    files: [{key}]\n", made)
        self.assertIn("\n  disableNameSuffixHash: true", made)

    @unittest.skipIf(shutil.which("kubectl") is None and os.environ.get("CI") != "true", "needs kubectl")
    def test_the_job_comes_with_its_secret_or_not_at_all(self):
        held = tempfile.TemporaryDirectory(prefix="muster-places-")
        self.addCleanup(held.cleanup)
        folder = pathlib.Path(held.name)
        for name in ("job.yaml", "kustomization.yaml"):
            shutil.copy(SCRIPTS / "kubernetes" / name, folder)
        def render():
            return subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=120)
        without = render()
        self.assertNotEqual(without.returncode, 0)
        self.assertEqual(without.stdout, "")
        secret = b"secret of the job\n"
        (folder / "key").write_bytes(secret)
        made = render()
        self.assertEqual(made.returncode, 0, made.stderr)
        documents = {re.search(r"^kind: (.*)$", part, re.M).group(1): part for part in made.stdout.split("\n---\n")}
        self.assertEqual(set(documents), {"Secret", "Service", "NetworkPolicy", "Job"})
        self.assertIn(f"  key: {base64.b64encode(secret).decode()}\n", documents["Secret"])
        self.assertIn("\n  name: train\n", documents["Secret"])
        self.assertIn("\n          secretName: train", documents["Job"])

    @unittest.skipUnless(os.geteuid() == 0, "needs root, which may become another user")
    def test_a_mounted_secret_is_read_by_its_group(self):
        """As the kubelet mounts it with fsGroup: mode 0440, owner root, below a link."""
        held = tempfile.TemporaryDirectory(prefix="muster-places-", dir="/tmp")  # where every user gets by
        self.addCleanup(held.cleanup)
        mount = pathlib.Path(held.name)
        (mount / "..data").mkdir()
        mount.chmod(0o755)
        key = mount / "..data/key"
        key.write_text("secret of the job\n")
        os.chown(key, 0, 1000)
        (mount / "key").symlink_to("..data/key")
        for mode, said, code in ((0o440, "", 0), (0o444, "may be used by others than its owner", 78)):
            key.chmod(mode)
            done = subprocess.run([*as_user(1000), MUSTER, "--no-python",
                                   "true"], env={"PATH": os.environ["PATH"], "TMPDIR": "/tmp",
                                                 "MUSTER_SECRET_FILE": str(mount / "key")},
                                  cwd="/", text=True, stderr=subprocess.PIPE, timeout=120)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.returncode, code, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
