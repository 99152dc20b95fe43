"""Import works anywhere, is quick, and imports only NumPy."""

import ast
import re
from pathlib import Path

import pytest

import sgemm_kernels

from .support import printed_by


def test_public_names():
    assert all(hasattr(sgemm_kernels, name) for name in sgemm_kernels.__all__)
    assert sgemm_kernels.__all__ == sorted(sgemm_kernels.__all__)
    for name in sgemm_kernels.__all__:
        assert getattr(sgemm_kernels, name).__doc__, name


def test_public_names_stay_when_every_module_is_imported():
    """An imported submodule becomes an attribute of its package. None may replace a public name."""
    script = """
        import importlib
        import pkgutil
        import sgemm_kernels
        of_torch = ("._torch_gram", "._torch_grouped", "._torch_operators", "._torch_sharding")
        may_lack = ("__main__", ".jax", "._jax_checks", "._jax_handler", ".torch", *of_torch)
        before = {name: getattr(sgemm_kernels, name) for name in sgemm_kernels.__all__}
        for module in pkgutil.walk_packages(sgemm_kernels.__path__, "sgemm_kernels."):
            if not module.name.endswith(may_lack):
                importlib.import_module(module.name)
        print(*(n for n in before if getattr(sgemm_kernels, n) is not before[n]), "all stay")
    """
    assert printed_by(script) == "all stay"


@pytest.mark.parametrize("folder", ["measuring", "proving", "explaining", "custom", "cli"])
def test_no_subpackage_has_a_public_name(folder):
    assert folder not in sgemm_kernels.__all__
    assert (Path(sgemm_kernels.__file__).parent / folder / "__init__.py").is_file()


def test_lazy_imports_match_those_of_the_type_checker():
    """_LATER names the same modules as the imports under TYPE_CHECKING."""
    text = Path(sgemm_kernels.__file__).read_text(encoding="utf-8")
    checked = {
        alias.name: node.module
        for block in ast.parse(text).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        for alias in node.names
    }
    later = dict(vars(sgemm_kernels)["_LATER"])
    assert later.pop("load_ipython_extension") == "cli.notebook"
    assert later == checked


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", sgemm_kernels.__version__)


def test_run_is_documented():
    document = sgemm_kernels.run.__doc__
    for word in (
        "(..., M, K)",
        "(..., K, N)",
        "(..., M, N)",
        "float32",
        "alpha",
        "beta",
        "out",
        "device",
        "Raises",
    ):
        assert word in document, word


def test_the_package_is_typed_and_carries_its_stub():
    package = Path(sgemm_kernels.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_core.pyi").exists()


def test_jax_is_optional():
    """The package does not import it, and the module that needs it says what to install."""
    script = """
        import sys
        sys.modules["jax"] = None
        import sgemm_kernels
        try:
            import sgemm_kernels.jax
        except ImportError as error:
            print(error)
    """
    message = printed_by(script)
    assert message.startswith("sgemm_kernels.jax needs JAX 0.8.2 or newer")
    assert "pip install -U jax" in message


def test_import_loads_no_other_package_and_no_subpackage():
    """So it is quick."""
    script = """
        import sys
        import numpy
        before = set(sys.modules)
        import sgemm_kernels
        loaded = set(sys.modules) - before - {"sgemm_kernels"}
        print(sorted(
            name for name in loaded
            if not name.startswith("sgemm_kernels._")
            and name.partition(".")[0] not in sys.stdlib_module_names
        ))
    """
    assert printed_by(script) == "[]"


def test_neither_import_nor_variants_touches_a_gpu():
    """Afterwards neither the driver's library nor one of its device files is open."""
    script = """
        import os
        import sgemm_kernels
        sgemm_kernels.variants()
        sgemm_kernels.build_info()
        [repr(variant) + str(variant.source) for variant in sgemm_kernels.variants()]
        with open("/proc/self/maps") as maps:
            loaded = maps.read()
        links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
        opened = [os.readlink(link) for link in links if os.path.islink(link)]
        assert "libcuda.so" not in loaded and "libcublas" not in loaded
        assert not any("nvidia" in path for path in opened)
        print("untouched")
    """
    assert printed_by(script) == "untouched"


def test_a_second_import_is_independent():
    """A new import has its own module state."""
    script = """
        import sys
        import sgemm_kernels
        first = sgemm_kernels._core
        for name in [name for name in sys.modules if name.startswith("sgemm_kernels")]:
            del sys.modules[name]
        import sgemm_kernels
        assert sgemm_kernels._core is not first
        try:
            sgemm_kernels.run("naive", [], [])
        except TypeError:
            print(issubclass(sgemm_kernels.DeviceError, sgemm_kernels.Error))
    """
    assert printed_by(script) == "True"


def test_build_info():
    build = sgemm_kernels.build_info()
    assert re.fullmatch(r"[0-9a-f]{16}", build.csrc_hash)
    assert build.compiler
    if build.cuda_toolkit is None:
        assert build.architectures == ()
    else:
        assert re.fullmatch(r"\d+\.\d+(\.\d+)?", build.cuda_toolkit)
        assert any(name.startswith("compute_") for name in build.architectures)
        assert all(re.fullmatch(r"(sm|compute)_\d+", name) for name in build.architectures)
