"""A real browser for tests: headless Chromium, spoken to through its DevTools pipe."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars"),
)


def require_chromium() -> str:
    """Its path. Where there is none the test says so: aloud, and in CI as a failure."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    reason = "no browser here: install Chromium (Debian: apt-get install chromium)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Page:
    """One tab. What it complains about is kept in `complaints`, what it fetches in `requests`."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, params, self)

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=scheme)
        self.complaints.clear()
        self.requests.clear()
        self._browser.loaded.discard(self._session)
        self.call("Page.navigate", url=url)
        self._browser.wait_loaded(self._session)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        # Beyond this a picture is of no use, and costs much memory.
        height = min(size["height"], 12_000)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def print(self, file: Path) -> None:
        answer = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def hear(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])


class Browser:
    """Commands go out and answers come in as JSON, each ended by a NUL."""

    def __init__(self, to: int, answers: int) -> None:
        self._to = to
        self._from = answers
        self._rest = b""
        self._number = 0
        self._pages: dict[str, Page] = {}
        self.loaded: set[str] = set()

    def new_page(self) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = attached["sessionId"]
        self._pages[session] = Page.__new__(Page)
        self._pages[session].__init__(self, session)  # type: ignore[misc]
        return self._pages[session]

    def call(self, method: str, params: dict[str, Any], page: Page | None = None) -> dict[str, Any]:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if page is not None:
            command["sessionId"] = page._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def wait_loaded(self, session: str) -> None:
        while session not in self.loaded:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._from, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        session = message.get("sessionId", "")
        if message.get("method") == "Page.loadEventFired":
            self.loaded.add(session)
        elif "method" in message and session in self._pages:
            self._pages[session].hear(message)
        return message


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, for five minutes at most."""
    path = require_chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts the pipes there
        # (bash, since not every sh knows descriptors of two digits).
        process = subprocess.Popen(
            [
                *(
                    "timeout",
                    "300",
                    "bash",
                    "-c",
                    f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
                    "bash",
                ),
                *(path, *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        browser = Browser(ours_out, ours_in)
        try:
            yield browser
        finally:
            os.close(ours_out)  # with its pipe gone, Chromium ends by itself
            os.close(ours_in)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(10)
