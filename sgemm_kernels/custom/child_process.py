"""A child process for kernels that have not passed ``check`` and ``sanitize`` yet.

The child works on copies of the operands. If the kernel writes to stray addresses or never ends,
only the child is killed, and this process gets an exception.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .._core import DeviceError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_GRACE_S = 5.0
"""How long an interrupted child may take to answer."""

START_S = 30.0
"""How long a child may take to start and to open the kernel's library."""


class ChildError(DeviceError):
    """The child process ended or was killed; ``doing`` is what it was computing."""

    def __init__(self, what: str, advice: str = "", doing: str = "") -> None:
        super().__init__(": ".join(filter(None, (what, advice))))
        self.what = what
        """The message without its advice."""
        self.doing = doing


class EndlessError(ChildError):
    """A time limit expired."""


class Child:
    """Calls functions of this package in another process, one at a time. Starts it when needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit_s: float | None = None
        """The time limit of ``call`` in seconds; None: no limit."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None

    def call(self, function: Callable[_P, _R], *args: _P.args, **keywords: _P.kwargs) -> _R:
        """Calls a function in the child. Returns its result, or raises its exception.

        Also raises ChildError if the child ends, EndlessError if a time limit expires, TypeError
        for arguments that cannot be sent, MemoryError if their copies do not fit, and
        KeyboardInterrupt.
        """
        return self.call_within(self.limit_s, function, *args, **keywords)

    def call_within(
        self,
        limit_s: float | None,
        function: Callable[_P, _R],
        *args: _P.args,
        **keywords: _P.kwargs,
    ) -> _R:
        """The same with another time limit."""
        with self._lock:
            try:
                call = ForkingPickler.dumps((function, args, keywords))
            except MemoryError:
                raise
            except Exception as error:
                raise _not_there(self.name, error) from None
            self._start()
            try:
                assert self._pipe is not None
                self._pipe.send_bytes(call)
                del call  # it holds copies of all operands
                kind, value, warned = self._answer(limit_s)
            except (EOFError, OSError):
                raise ChildError(
                    self._how_it_ended(), "k.sanitize() says where it went wrong", self._doing
                ) from None
            except BaseException:
                self.end()
                raise
        for warning, category in warned:
            warnings.warn(warning, category, stacklevel=4)
        if kind == "raised":
            raise value
        return value  # type: ignore[no-any-return]

    def end(self) -> None:
        """Ends the child, if there is one."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        ours, theirs = Pipe()
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; "
        code += f"serve({theirs.fileno()})"
        # A new session, since the terminal would interrupt it as well: ``_answer`` does that once.
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._pipe = ours
        self._doing = "starting"
        self._finalizer = weakref.finalize(self, _end, self._process)

    def _answer(self, limit_s: float | None) -> tuple[str, Any, list[tuple[str, type[Warning]]]]:
        assert self._pipe is not None
        end = None if limit_s is None else time.monotonic() + limit_s
        until, limit = end, limit_s
        interrupted = False
        self._doing = ""
        while True:
            try:
                left = None if until is None else max(until - time.monotonic(), 0)
                if not self._pipe.poll(left):
                    if interrupted:
                        raise KeyboardInterrupt
                    raise EndlessError(
                        f"{self.name} was still computing {self._doing or 'something'} after "
                        f"{limit:g} s, and was ended",
                        "k.sanitize() says where it stays",
                        self._doing,
                    )
                answer = self._pipe.recv()
            except KeyboardInterrupt:
                if interrupted or self._process is None:
                    raise
                interrupted = True
                self._process.send_signal(signal.SIGINT)
                until = time.monotonic() + _GRACE_S
                continue
            except (EOFError, OSError):
                if interrupted:
                    raise KeyboardInterrupt from None
                raise
            if answer[0] != "limit":
                return answer  # type: ignore[no-any-return]
            _, limit, self._doing = answer
            if not interrupted:
                until = None if limit is None else time.monotonic() + limit
                if end is not None and (until is None or end < until):
                    until, limit = end, limit_s

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"exit status {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        doing = f" while computing {self._doing}" if self._doing else ""
        self.end()
        return f"{self.name} ended its process{doing} ({how})"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def run_limited(
    command: Sequence[str],
    seconds: float,
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Runs a program with ``content`` as its input, and returns its output.

    When the time is over, or at an interrupt, the program and its children are killed. Raises
    subprocess.TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL if content is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(content, seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, *said)


# ------------------------------------------------------------------ in the child

_to_parent: "Connection[Any, Any] | None" = None
_for_one_kernel = False


def is_child() -> bool:
    """Whether this process is a child for custom kernels."""
    return _to_parent is not None or _for_one_kernel


def become_child() -> None:
    """Marks a process as a child that ``Child`` did not start."""
    global _for_one_kernel
    _for_one_kernel = True


def begin(doing: str, seconds: float | None) -> None:
    """Tells the parent what is computed now, and its time limit; None: no limit.

    Does nothing in a process without a parent.
    """
    if _to_parent is not None:
        _to_parent.send(("limit", seconds, doing))


def serve(descriptor: int) -> None:
    """Answers the parent's calls until the parent closes the pipe or ends."""
    global _to_parent
    _to_parent = Connection(descriptor)
    _end_with_parent()
    while True:
        try:
            call = _to_parent.recv_bytes()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            function, args, keywords = _taken(call)
        except (Exception, KeyboardInterrupt) as error:
            _to_parent.send(("raised", error, ()))
            continue
        finally:
            del call  # args and keywords are copies of it
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                answer = ("returned", function(*args, **keywords))
            except BaseException as error:
                answer = ("raised", _sendable(error))
        warned = [(str(warning.message), warning.category) for warning in caught]
        try:
            _to_parent.send((*answer, warned))
        except (TypeError, AttributeError, ValueError) as error:  # it cannot be pickled
            _to_parent.send(("raised", DeviceError(f"{answer[1]!r} ({error})"), warned))


def _sendable(error: BaseException) -> BaseException:
    """The exception, or a DeviceError with its text if the parent could not unpickle it."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
        return error
    except Exception as fault:
        return DeviceError(f"{error!r} ({fault})")


def _taken(call: bytes) -> Any:
    try:
        return ForkingPickler.loads(call)
    except (AttributeError, ImportError) as error:  # only the parent has it
        raise _not_there("the kernel", error) from None


def _not_there(name: str, error: Exception) -> TypeError:
    return TypeError(
        f"until {name} has passed check() and sanitize(), it runs in its own process, which cannot "
        f"have an argument: {error}. Call both first, or import what is missing from a module"
    )


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, even during a computation."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
