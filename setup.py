"""pyproject.toml says what the package is; this file has its extension and its C libraries
compiled, and describes it by README."""

import os
from pathlib import Path

from setuptools import Extension, __version__, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

from build_backend.compiling import build_core, libraries_beside
from build_backend.description import description
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
        except BuildError as error:
            raise CompileError(str(error)) from None
        target = self.get_ext_fullpath(ext.name)
        self.mkpath(os.path.dirname(target))
        self.copy_file(str(library), target)
        self._copy_libraries(list(libraries_beside(ROOT, library)), Path(target).parent)

    def _copy_libraries(self, libraries: list[Path], package: Path) -> None:
        self.mkpath(str(package / "lib"))
        for library in libraries:
            place = package / "lib" / library.name
            place.unlink(missing_ok=True)  # a program that uses the old one keeps it
            self.copy_file(str(library), str(place))

    def copy_extensions_to_source(self) -> None:
        """Completes the package in this folder, for an editable install.

        The package finds its kernels' sources and its results beside itself, where a wheel puts
        them.
        """
        super().copy_extensions_to_source()
        built = Path(self.build_lib) / "sgemm_kernels/lib"
        self._copy_libraries(sorted(built.glob("*.so")), ROOT / "sgemm_kernels")
        for name, place in (("csrc", "csrc"), ("recorded", "benchmarks/results")):
            beside = ROOT / "sgemm_kernels" / name
            if not beside.exists():
                beside.symlink_to(f"../{place}")
        include = ROOT / "sgemm_kernels/include"
        include.mkdir(exist_ok=True)
        for name in ("sgemm_kernels.h", "sgemm_kernels.f90"):
            (include / name).unlink(missing_ok=True)
            (include / name).symlink_to(f"../../csrc/frontends/c/{name}")


setup(
    ext_modules=[Extension("sgemm_kernels._core", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": BuildCore},
    long_description=description(ROOT),
    long_description_content_type="text/markdown",
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
