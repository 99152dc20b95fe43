"""A progress bar on the terminal."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_BAR = 30
"""Width of the progress bar in characters."""


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Shows a progress bar on a terminal; elsewhere nothing."""
    done = 0
    begin = time.monotonic()

    def advance(name: str) -> None:
        nonlocal done
        done += 1
        filled = _BAR * done // total
        bar = "#" * filled + "." * (_BAR - filled)
        seconds = time.monotonic() - begin
        print(f"\r[{bar}] {done} of {total}, {seconds:.0f} s: {name:<12}", end="", file=sys.stderr)
        sys.stderr.flush()

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield advance
    finally:
        print("\r" + " " * 79 + "\r", end="", file=sys.stderr)
        sys.stderr.flush()
