"""Drives a headless Chromium through its DevTools protocol over two pipes."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
_START = """
import os, sys
commands, answers = (os.dup(int(end)) for end in sys.argv[1:3])
for mine, its in ((commands, 3), (answers, 4)):
    os.dup2(mine, its)
    os.set_inheritable(its, True)
os.execv(sys.argv[3], sys.argv[3:])
"""

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """The path of a Chromium, or None if none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page in its own browser process. Errors and network requests go to ``complaints``."""

    def __init__(self) -> None:
        program = find()
        assert program is not None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands_in, self._commands = os.pipe()
        self._answers, answers_out = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]
        options += ["--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options += [f"--user-data-dir={self._home.name}", "about:blank"]
        ends = [str(commands_in), str(answers_out)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *ends, program, *options],
            pass_fds=(commands_in, answers_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_in)
        os.close(answers_out)
        self._numbers = itertools.count(1)
        self._received = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        self._events: list[str] = []
        (target,) = [
            each["targetId"]
            for each in self._call("Target.getTargets")["targetInfos"]
            if each["type"] == "page"
        ]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._commands)
        os.close(self._answers)
        self._process.terminate()
        self._process.wait(30)
        self._home.cleanup()

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Opens a file and waits until it has loaded."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self._call("Emulation.setDeviceMetricsOverride", mobile=width < 500, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Presses and releases a key whose name is also its code."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )
        self._settle()

    def click(self, selector: str) -> None:
        """Clicks the middle of the first element that matches the selector."""
        x, y = self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, **where)
        self._settle()

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of the visible part, or of the whole page."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _settle(self) -> None:
        """Waits for the next frame. By then the page has handled the event."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            piece = os.read(self._answers, 1 << 20)
            assert piece, "the browser ended"
            self._received += piece
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(json.dumps(message["params"]))
            case "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    self.complaints.append(f"asks the network for {url}")
            case str(event):
                self._events.append(event)
        return message
