"""Compiles what every custom kernel is linked with, for `make test`.

    python -m tests.compiled_parts

Each test process would otherwise compile the same files. They are kept in build/test-cache: see
``custom_cache`` in conftest.py.
"""

import os
from pathlib import Path

from sgemm_kernels.custom import compiler
from sgemm_kernels.custom.compiler import Source
from sgemm_kernels.custom.plain import PlainLaunch

FOLDER = Path(__file__).parent.parent / "build/test-cache"


def main() -> None:
    os.environ["SGEMM_KERNELS_CACHE"] = str(FOLDER / compiler.headers_digest())
    builds = (
        compiler.run_build(),
        compiler.access_trace_build(),
        compiler.sanitizer_build(),
        compiler.deferred_async_build(),
    )
    plain = Source(Path("plain.cu"), "", launch=PlainLaunch(1, 32))
    for build in builds:
        compiler.parts_of(build, plain)


if __name__ == "__main__":
    main()
