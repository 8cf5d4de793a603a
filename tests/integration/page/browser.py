"""Chromium without a window, over a pipe by the DevTools protocol. Standard library only."""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    """One browser process. Use it as a context manager."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="muster-page-")
        commands, self.to_browser = os.pipe()
        self.from_browser, answers = os.pipe()

        def place_pipe():
            # The browser reads from 3 and writes to 4. Both ends may lie there already, so they go out of the way first.
            high_read, high_write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in (commands, answers))
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        # As root Chromium has no sandbox; containers have a small /dev/shm.
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=place_pipe, close_fds=False,
            start_new_session=True, env={**os.environ, "HOME": self.folder, "TMPDIR": self.folder})  # killed, it tidies up nothing
        os.close(commands)
        os.close(answers)
        self.rest = b""
        self.number = 0
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: with its helpers
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, deadline):
        """The next message; those of a page go to its list as well."""
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise AssertionError("no answer from Chromium")
            more = os.read(self.from_browser, 1 << 20)
            if not more:
                raise AssertionError(f"Chromium ended with {self.process.wait()}")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        if (page := self.pages.get(message.get("sessionId"))) and "method" in message:
            page.happened.append(message)
        return message

    def call(self, method, session=None, seconds=60, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while (answer := self.read(deadline)).get("id") != number:
            pass
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, address, width=1200, height=900, scheme="light"):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.go(address)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        self.happened = []
        browser.pages[session] = self

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def go(self, address):
        self.call("Page.navigate", url=address)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self):
        """What stands on the page, as one line."""
        return " ".join((self.value("document.body ? document.body.innerText : ''") or "").split())

    def wait_for(self, condition, seconds=60):
        """Waits until the JavaScript `condition` is true, or the text stands on the page."""
        deadline = time.monotonic() + seconds
        expression = condition if condition.startswith("(") else f"document.body.innerText.replace(/\\s+/g, ' ').includes({json.dumps(condition)})"
        while not self.value(f"Boolean(document.body && {expression})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {condition}\nthe page has: {self.text()}\n{self.complaints()}")
            time.sleep(0.02)  # between two looks; the condition decides

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def picture(self, path):
        height = min(8000, self.value("document.documentElement.scrollHeight"))
        width = self.value("innerWidth")
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def requests(self):
        return [one["params"]["request"]["url"] for one in self.happened if one["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """Errors, warnings and blocked loads, as the developer's console has them."""
        found = []
        for one in self.happened:
            values = one["params"]
            if one["method"] == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                found.append(f"{values['entry']['source']}: {values['entry']['text']} {values['entry'].get('url', '')}")
            elif one["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(values["exceptionDetails"])[:500])
            elif one["method"] == "Runtime.consoleAPICalled":
                found.append(f"console.{values['type']}: {values['args']}")
        return found

    def nameless_controls(self):
        """Links, buttons and inputs for which a screen reader has no name."""
        controls = {"link", "button", "textbox", "searchbox", "region"}
        return [node["role"]["value"] for node in self.call("Accessibility.getFullAXTree")["nodes"]
                if not node.get("ignored") and node.get("role", {}).get("value") in controls and not node.get("name", {}).get("value")]
