"""The page as a person sees it: a real musterd, real jobs, Debian's Chromium.

MUSTER_PAGE_PICTURES=DIR keeps pictures of the views, to look at."""
import json
import os
import sys
import time
import unittest

from browser import CHROMIUM, Browser
from served_test import OUTER, Job, daemon_for_all, get, secret_file, token_of, wait_for
from job import WORKERS
from steps_test import WORKER

PICTURES = os.environ.get("MUSTER_PAGE_PICTURES")
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><script>alert(1)</script> & '\"/?#%41 \u2028\u2029naïve-漢字"
SHOWN = HOSTILE.replace("\u2028", "\ufffd").replace("\u2029", "\ufffd")


@unittest.skipUnless(CHROMIUM, "chromium is not installed (scripts/setup --tests)")
class Seen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def check(self, page, but=()):
        """Nothing was blocked, failed or asked of another host, and a screen reader has a name for everything."""
        self.assertEqual([one for one in page.complaints() if not any(word in one for word in but)], [])
        hosts = {address.split("/")[2].split(":")[0] for address in page.requests() if address.startswith("http")}
        self.assertLessEqual(hosts, {"127.0.0.1", OUTER})
        self.assertEqual(page.nameless_controls(), [])

    def picture(self, page, name):
        if PICTURES:
            page.picture(f"{PICTURES}/{name}.png")

    def stepping_job(self, job):
        """A job whose rank 1 fails in round 0, and that steps on in round 1."""
        script = job.directory / "worker.py"
        script.write_text(WORKER)
        node = job.spawn("muster", "--nnodes", 1, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                         f"127.0.0.1:{job.port}", "--rdzv-id", job.id, "--max-restarts", 1, "--lease", 10, "--gpu-use", "--no-python",
                         sys.executable, script, job.directory, MUSTER_NVML_LIBRARY=os.environ["FAKE_NVML_LIBRARY"],
                         FAKE_NVML="GPU-a;GPU-b", FAKE_NVML_HEALTH="0 busy 97 1 busy 12")
        for rank in (0, 1):
            wait_for("start of a worker", (job.directory / f"started-{rank}-0").exists)
        self.write_step(job, 10)
        return node

    def write_step(self, job, step):
        (job.directory / "new").write_text(str(step))
        (job.directory / "new").rename(job.directory / "step")

    def test_a_job_with_a_failed_round_from_the_list_to_the_node_by_the_keyboard(self):
        with Job() as job:
            job.daemon()
            node = self.stepping_job(job)
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for(job.id)
            self.picture(page, "jobs")
            page.wait_for(f"(document.querySelector('a[href=\"#/jobs/{job.id}\"]'))")
            page.value(f"document.querySelector('a[href=\"#/jobs/{job.id}\"]').focus()")
            page.press("Enter", 13)
            page.wait_for("Round 0 runs on 1 node.")
            page.wait_for("(document.title.startsWith('Job '))")
            job.touch("fail")
            page.wait_for("Round 1 runs on 1 node.")
            page.wait_for("rank 1 on ")
            for text in ("Restarts 1 of 1", "Failures 1", "a worker failed", "node.joined"):
                page.wait_for(text)
            self.picture(page, "job-failed-light")
            page.wait_for("exit code 3")
            page.wait_for("(document.querySelector('a[href*=\"/nodes/\"]'))")
            page.value("document.querySelector('a[href*=\"/nodes/\"]').focus()")
            page.press("Enter", 13)
            page.wait_for("It is running.")
            page.wait_for("Ranks 0-1")
            page.wait_for("GPU use GPU 0 97 %, GPU 1 12 %")
            self.picture(page, "node")
            page.value("document.getElementById('to-daemon').click()")
            page.wait_for("muster_agents")
            page.wait_for("Viewers of this page 1 of 64")
            self.picture(page, "daemon")
            for name, width, scheme in (("job-failed-dark", 1200, "dark"), ("job-failed-phone", 400, "light")):
                other = self.browser.page(f"http://127.0.0.1:{job.port}/#/jobs/{job.id}", width=width, scheme=scheme)
                other.wait_for("a worker failed")
                self.assertLessEqual(other.value("document.documentElement.scrollWidth"), width)
                self.picture(other, name)
                self.check(other)
            job.finish()
            job.expect_exit(node, 0)
            page.call("Page.bringToFront")  # A tab in the background has no stream.
            page.value(f"location.hash = '#/jobs/{job.id}'")
            page.wait_for("The job succeeded: all workers exited 0.")
            page.wait_for("Step 10 ")
            self.picture(page, "over")
            self.check(page)

    def test_the_step_the_pace_and_the_checkpoints_of_a_job_are_those_that_are_known(self):
        with Job() as job:
            job.daemon()
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for("No job is here.")

            def fact(name, phase, ended="{}", detail="{}", pace="undefined", row=""):
                return page.value(f"""import('/page/job.js').then(({{Job}}) => {{
                  const job = new Job('x');
                  job.showFacts({{phase: '{phase}', step: 7, nodes: {{}}, {row}}}, {{pace: {pace}, detail: {detail}, history: {{over: {{data: {ended}}}}}}});
                  return job.values.{name}.textContent;}})""")
            self.assertEqual([fact("Step", "running"), fact("Step", "over"), fact("Step", "over", ended="{step: 9}")], ["7", "7", "9"])
            samples = "{samples_per_second: 12345.6}"
            self.assertEqual(fact("Pace", "running", detail=samples, pace="1.2345"), "1.23 steps/s, 12,300 samples/s")
            self.assertEqual([fact("Pace", "running"), fact("Pace", "over", detail=samples, pace="1.5")], ["-", "-"])
            # Agents report every 10 s: the step that a page sees first is old, and one that stays for long is a standstill.
            paces = page.value("""import('/page/pace.js').then(({Pace}) => {
              const pace = new Pace();
              const at = (step, ms) => { pace.note(step, ms); return pace.perSecond(ms); };
              return JSON.stringify([at(100, 0), at(200, 500), at(300, 10500), at(300, 20500), at(300, 115500), at(7, 116000)]
                .map((one) => one ?? null));})""")
            self.assertEqual(json.loads(paces), [None, None, 10, 10, 1, None])
            tiers = "{shared: {step: 1030, age_s: 300}, memory: {step: 1050, age_s: 12}, local: {step: 1040, age_s: 0}, neighbour: {step: 1045}}"
            self.assertEqual(fact("Checkpoint", "running", detail=f"{{checkpoints: {tiers}}}"),
                             "step 1,050 in memory (12 s ago), step 1,045 in neighbours' memory, step 1,040 on local disks (now), "
                             "step 1,030 in the checkpoint directory (5 min ago)")
            budget = "restarts_used: {}, restarts_max: 10, restarts_left: 8"
            self.assertEqual([fact("Restarts", "running", row=budget.format(used)) for used in (2, 12)], ["2 of 10", "2 of 10, 12 in all"])
            self.assertEqual([fact("Checkpoint", "running"), fact("Checkpoint", "over", row="checkpoint_step: 40")], ["-", "step 40"])
            self.check(page)

    def test_a_hostile_name_stays_text(self):
        with Job() as job:
            job.daemon()
            node = job.spawn("muster", "--nnodes", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}",
                             "--lease", 10, "--no-python", WORKERS / "elastic", "--until", "done", MUSTER_RDZV_ID=HOSTILE)
            job.round(0, 1)
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for(SHOWN)
            page.value("document.querySelector('tbody a').click()")
            page.wait_for("Round 0 runs on 1 node.")
            self.assertEqual(page.value("document.querySelector('h1').textContent"), f"Job {SHOWN}")
            self.assertEqual(page.value("document.querySelectorAll('img, main script').length"), 0)
            self.picture(page, "hostile")
            self.check(page)
            job.finish()
            job.expect_exit(node, 0)

    def test_a_daemon_that_is_away_is_told_of_and_the_page_goes_on_by_itself(self):
        with Job() as job:
            daemon = job.daemon()
            node = job.node("--lease", 10, nnodes="1", nproc=1)
            job.round(0, 1)
            page = self.browser.page(f"http://127.0.0.1:{job.port}/#/jobs/{job.id}")
            page.wait_for("Round 0 runs on 1 node.")
            page.wait_for("(document.querySelector('a[href*=\"/nodes/\"]'))")
            page.value("document.querySelector('a[href*=\"/nodes/\"]').click()")
            page.wait_for("Ranks 0")
            self.assertNotIn("GPU use", page.text())  # Not asked for.
            page.value("history.back()")
            page.wait_for("Round 0 runs on 1 node.")
            daemon.kill()
            daemon.wait()
            page.wait_for("No word from the daemon since ")
            page.wait_for("not live")
            page.wait_for("Away for ")
            self.assertIn("Round 0 runs on 1 node.", page.text())
            self.picture(page, "away")
            job.daemon()
            page.wait_for("(document.getElementById('link').textContent === 'live' && document.getElementById('trouble').hidden)")
            page.wait_for("Round 0 runs on 1 node.")
            self.check(page, but=("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"))
            job.finish()
            job.expect_exit(node, 0)

    def test_a_killed_daemon_is_told_of_within_2_s(self):
        with Job() as job:
            daemon = job.daemon()
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for("No job is here.")

            def is_soon():
                nonlocal daemon
                began = time.monotonic()
                daemon.kill()
                page.wait_for("No word from the daemon since ")
                took = time.monotonic() - began
                daemon.wait()
                daemon = job.daemon()
                page.wait_for("(document.getElementById('link').textContent === 'live' && document.getElementById('trouble').hidden)")
                return took < 2
            self.assertTrue(any(is_soon() for _ in range(5)))  # A busy machine is not late each time.

    def test_hosts_of_slurm_s_list_that_have_not_come_are_named(self):
        with Job() as job:
            job.daemon()
            slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0",
                     "SLURM_STEP_NODELIST": f"{os.uname().nodename},gpu[07-08]"}
            node = job.node("--lease", 10, nnodes="1:3", nproc=1, conf="last_call_timeout=2", **slurm)
            page = self.browser.page(f"http://127.0.0.1:{job.port}/#/jobs/{job.id}")
            page.wait_for("Round 0 runs on 1 node.")
            page.wait_for("Not here: gpu07, gpu08.")
            page.wait_for("node.joined")
            self.picture(page, "slurm")
            self.check(page)
            job.finish()
            job.expect_exit(node, 0)

    def test_a_round_that_began_before_the_oldest_event_is_there(self):
        with Job() as job:
            job.daemon()
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for("No job is here.")
            page.value("""import('/page/history.js').then(({History}) => {
              const folds = [[['job.note']], [['round.stepping', 7]], [['round.ended', 7], ['round.sealed', 8]], []].map((events) => {
                const history = new History();
                events.forEach(([type, round], i) => history.add({type: `muster.${type}.v1`, time: new Date(1000 * i).toISOString(), data: {round}}));
                const {rounds} = history.fold(events.length === 2 ? 8 : 7);
                return rounds.map(({number, began, before, ended}) => [number, began, Boolean(before), ended ?? null]);
              });
              window.folds = JSON.stringify(folds);
            })""")
            page.wait_for("(window.folds)")
            early = [7, 0, True, None]
            self.assertEqual(json.loads(page.value("window.folds")), [[early], [early], [[7, 0, True, 0], [8, 1000, False, None]], []])
            self.check(page)

    def test_the_timeline_has_hangs_in_their_round_and_checkpoints_below_it(self):
        with Job() as job:
            job.daemon()
            page = self.browser.page(f"http://127.0.0.1:{job.port}/")
            page.wait_for("No job is here.")
            page.value("""Promise.all([import('/page/history.js'), import('/page/charts.js')]).then(([{History}, {Timeline}]) => {
              const [history, timeline] = [new History(), new Timeline()];
              for (const [second, type, data] of [[0, 'round.sealed'], [100, 'round.stepping'], [200, 'checkpoint.committed'], [201, 'checkpoint.committed'],
                [300, 'checkpoint.committed'], [400, 'checkpoint.failed'], [600, 'hang.suspected', {hung_ms: 100000}], [650, 'hang.suspected'], [700, 'hang.over'],
                [900, 'hang.suspected', {hung_ms: 50000}], [1000, 'job.ended']]) {
                history.add({type: `muster.${type}.v1`, time: new Date(1000 * second).toISOString(), data: {round: 0, ...data}});
              }
              timeline.update(history.fold(), 2000000);
              window.drawn = JSON.stringify([...timeline.svg.querySelectorAll('rect')].map((rect) =>
                [rect.getAttribute('class'), rect.parentNode.getAttribute('class'), rect.x.baseVal.value, rect.width.baseVal.value]));
              window.label = timeline.svg.getAttribute('aria-label');
            })""")
            page.wait_for("(window.label)")
            drawn = json.loads(page.value("window.drawn"))
            self.assertEqual([one for one in drawn if one[0] == "hung"], [["hung", None, 500, 200], ["hung", None, 850, 150]])
            self.assertEqual([one[1:] for one in drawn if one[0] == "mark"],
                             [["bad", 397, 6], ["care", 597, 6], ["care", 647, 6], ["care", 897, 6], ["calm", 199, 2], ["calm", 299, 2]])
            self.assertTrue(page.value("window.label").startswith("1 round in 17 min, 4 marks, 3 checkpoints."), page.value("window.label"))
            self.check(page)

    def test_an_unknown_job_and_an_empty_list_are_told_of(self):
        with Job() as job:
            job.daemon()
            page = self.browser.page(f"http://127.0.0.1:{job.port}/#/jobs/nosuch")
            page.wait_for("This daemon has no job nosuch.")
            self.assertNotIn("It has:", page.text())
            page.value("location.hash = '#/'")
            page.wait_for("No job is here.")
            self.check(page)

    def test_an_unknown_job_names_those_that_there_are_as_links(self):
        with Job() as job:
            job.daemon()
            job.node("--lease", 10, nnodes="1", nproc=1)
            job.round(0, 1)
            page = self.browser.page(f"http://127.0.0.1:{job.port}/#/jobs/nosuch")
            page.wait_for(f"This daemon has no job nosuch. It may have ended more than an hour ago, or have another name. It has: {job.id}")
            page.value(f"document.querySelector('a[href=\"#/jobs/{job.id}\"]').click()")
            page.wait_for("Round 0 runs on 1 node.")
            self.assertNotIn("It has:", page.text())
            links = page.value("""import('/page/job.js').then(({Job}) => {
              const job = new Job('nosuch');
              job.update({jobs: new Map([...'abcdefghijkl'].map((name) => [name, {}]))}, new Set());
              return [...job.node.querySelectorAll('a[href^="#/jobs/"]')].map((link) => link.textContent).join('');})""")
            self.assertEqual(links, "abcdefghij")
            self.check(page)
            job.finish()

    @unittest.skipUnless(OUTER, "this host has no address but loopback")
    def test_the_token_is_asked_for_and_never_in_a_request_s_address(self):
        with Job() as job:
            secret = secret_file(job, "key", "a secret of a page's test\n")
            daemon_for_all(job, secret)
            token = token_of(job, secret)
            self.assertEqual(get(job, "/api/v1/stream", host=OUTER)[0], 401)
            page = self.browser.page(f"http://{OUTER}:{job.port}/")
            page.wait_for("musterd --status-token")
            self.picture(page, "token")
            page.value("document.getElementById('token').value = 'naïve-漢字'; document.querySelector('#ask button').click()")
            page.wait_for("This token is not the daemon's.")
            page.value(f"document.getElementById('token').value = '{token}'; document.querySelector('#ask button').click()")
            page.wait_for("No job is here.")
            self.check(page, but=("401",))
            page = self.browser.page(f"http://{OUTER}:{job.port}/#token=wrong")
            page.wait_for("This token is not the daemon's.")
            page.value(f"location.hash = 'token={token}'")  # As an address that is pasted into the same tab.
            page.wait_for("No job is here.")
            page = self.browser.page(f"http://{OUTER}:{job.port}/#token={token}&/daemon")
            page.wait_for("muster_agents")
            self.assertEqual(page.value("location.hash"), "#/daemon")
            self.assertNotIn(token, page.value("document.documentElement.outerHTML + document.cookie + JSON.stringify([localStorage, sessionStorage])"))
            self.assertFalse([address for address in page.requests() if token in address.split("#")[0]])
            self.check(page)


if __name__ == "__main__":
    if not CHROMIUM and os.environ.get("CI") == "true":
        sys.exit("chromium is not installed: run scripts/setup --tests")
    unittest.main()
