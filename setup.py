"""pyproject.toml says what the package is; this file has its extension compiled."""

import os
from pathlib import Path

from setuptools import Extension, __version__, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

from build_backend.compiling import build_core, build_fake
from build_backend.toolkit import BuildError

ROOT = Path(__file__).resolve().parent

if int(__version__.split(".")[0]) < 77:  # older ones fail on pyproject.toml without saying why
    raise SystemExit(f"setuptools {__version__} is too old: pip install 'setuptools>=77'")


class BuildCore(build_ext):
    """Leaves compiling to build_backend, which compiles only what changed."""

    def build_extension(self, ext: Extension) -> None:
        """Puts the extension, made anew if need be, where setuptools wants it."""
        try:
            library = build_core(ROOT, os.environ)
            if os.environ.get("SGEMM_KERNELS_FAKE_CUDA") == "1":  # what this package's tests need
                build_fake(ROOT, os.environ)
        except BuildError as error:
            raise CompileError(str(error)) from None
        target = self.get_ext_fullpath(ext.name)
        self.mkpath(os.path.dirname(target))
        self.copy_file(str(library), target)

    def copy_extensions_to_source(self) -> None:
        """Completes the package in this folder, for an editable install.

        The package finds its kernels' sources and its results beside itself, where a wheel puts
        them.
        """
        super().copy_extensions_to_source()
        for name, place in (("csrc", "csrc"), ("recorded", "benchmarks/results")):
            beside = ROOT / "sgemm_kernels" / name
            if not beside.exists():
                beside.symlink_to(f"../{place}")


setup(
    ext_modules=[Extension("sgemm_kernels._core", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": BuildCore},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
