"""Loads custom kernels, and gives the text of kernels."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import SupportsIndex, TypeAlias

from .._catalog import Variant, variants
from .._launches import launch_keywords
from . import compiler
from .compiler import Source, checked_defines
from .kernel import Kernel
from .plain import PlainLaunch
from .plain_text import masked
from .standalone import standalone_source

_NAME = re.compile(r"\w+", re.ASCII)

Size: TypeAlias = str | int
Dimensions: TypeAlias = Size | Sequence[Size]


def kernel(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    defines: Mapping[str, SupportsIndex] | None = None,
    like: str | None = None,
    grid: Dimensions | None = None,
    block: Dimensions | None = None,
    shared: Size = 0,
    function: str | None = None,
    arguments: Mapping[str, str | int | float | None] | None = None,
    multiple_of: Size | Sequence[Size] | None = None,
    tile: Size | Sequence[Size] | None = None,
    accumulates: bool | None = None,
) -> Kernel:
    """Compiles a custom kernel, which can then be passed instead of a variant's name.

    It is compiled for the CPU device now, and for a GPU when it is first used there. The cache
    folder (``$SGEMM_KERNELS_CACHE``, or sgemm_kernels in the user's caches) keeps the compiled
    files. A kernel is a program with all your rights: do not load one that you would not run.

    A plain kernel is any CUDA file with a ``__global__`` function of pointers, sizes and scalars.
    It needs ``grid`` and ``block``: expressions of M, N, K and the file's constants. ``/`` rounds
    up, and ``//`` rounds down: ``kernel("blog.cu", grid="(N/32, M/32)", block=(32, 32))``. A file
    that started from a rung needs only ``like``: ``kernel("mine.cu", like="tile2d")``. A file that
    is written with kernel.h has its launch in itself, and needs neither.

    Parameters
    ----------
    source : str or path
        The path of the kernel's file. A str with a line break is the text itself.
    name : str, optional
        Its name, which must not be one of ``variants()``. The default is the file's name without
        the extension. A text needs a name.
    defines : mapping of str to int, optional
        Values of a plain kernel's integer constants, of constants that are declared with
        TUNABLE(NAME, default), and of macros.
    like : str, optional
        The rung that it started from. A plain kernel without ``grid`` and ``block`` is launched as
        that rung, with the constants of its own file.
    grid, block : str, int or sequence of these, optional
        The launch of a plain kernel: one to three dimensions, x first.
    shared : str or int, default 0
        The bytes of a plain kernel's dynamic shared memory.
    function : str, optional
        The ``__global__`` function, if a plain file has several or it is a template:
        'sgemm<64, 64, 8>'.
    arguments : mapping of str, optional
        What parameters of a plain kernel get, for those whose names do not tell: 'A', 'B', 'C',
        their transposes 'A.T', 'B.T', 'C.T', None for a null pointer, 'alpha', 'beta', a number,
        or an expression.
    multiple_of : int or sequence of three, optional
        M, N and K must be multiples of these. At other sizes, operands are padded with zeros.
    tile : sequence of three, optional
        The tile of C that a block of a plain kernel computes, and its step along K, if the grid
        does not tell.
    accumulates : bool, optional
        Whether a plain kernel adds to C. The launcher then zeroes C first. The default is True if
        the kernel has no beta and calls atomicAdd on C.

    Returns
    -------
    Kernel
        ``run``, ``measure`` and ``trace`` take it instead of a name.

    Raises
    ------
    CompileError
        It does not compile. The message is the compiler's, with line numbers of the file.
    NoCompilerError
        There is no C++ compiler.
    ValueError
        The name is invalid or one of the ladder's, the file does not use a define, or it is not
        UTF-8.
    OSError
        The file cannot be read.
    """
    text = os.fspath(source)
    if not isinstance(text, str):
        raise TypeError(f"a kernel's file is named by a str or a path, not by {source!r}")
    if "\n" in text:
        if name is None:
            raise ValueError("a kernel from text needs a name: pass name='mine'")
        path = Path(f"{name}.cu")
    else:
        path = Path(text).absolute()
        text = compiler.text_of(path)
    called = path.stem if name is None else name
    if fault := name_fault(called):
        raise ValueError(f"{fault}: pass name= to choose another name")
    launch = None
    from_rung = {} if like is None else launch_keywords(rung_named(like, "rung").name)
    if from_rung and grid is None and block is None and is_plain(text):
        grid, block = from_rung["grid"], from_rung["block"]
        shared = shared or from_rung["shared"]
        tile = from_rung["tile"] if tile is None else tile
    if grid is not None or block is not None:
        launch = PlainLaunch.of(
            grid,
            block,
            shared=shared,
            function=function,
            arguments=arguments,
            multiple_of=multiple_of,
            tile=tile,
            accumulates=accumulates,
        )
    elif any((shared, function, arguments, multiple_of, tile, accumulates)):
        raise ValueError(
            "shared, function, arguments, multiple_of, tile and accumulates are for plain kernels: "
            "pass grid= and block= too"
        )
    elif is_plain(text):
        raise ValueError(
            f"{path.name} is a plain CUDA kernel, so its launch is missing: pass grid= and block=, "
            "such as grid='(N/32, M/32)', block=(32, 32), or like='tile2d' if it started from that "
            "rung"
        )
    made = Source(path, text, checked_defines(defines or {}), launch=launch)
    if launch is not None:
        assert made.plain is not None  # raises ValueError for an unclear kernel
    return Kernel(made, called)


def is_plain(text: str) -> bool:
    """Whether it looks like a CUDA file without kernel.h."""
    code = masked(text)
    return "__global__" in code and not re.search(r"\b(RUNG|VARIANT|KernelSpec|Sgemm)\b", code)


def rung_named(name: "str | Kernel", what: str = "source") -> Variant:
    """The rung with that name. Raises ValueError, which says what is missing, if the ladder has
    none."""
    rungs = [entry for entry in variants() if entry.file is not None]
    for rung in rungs:
        if rung.name == name:
            return rung
    known = ", ".join(rung.name for rung in rungs)
    raise ValueError(f"there is no {what} of {name!r}: the rungs are {known}")


def name_fault(name: str) -> str | None:
    """Why a kernel cannot have this name; None if it can."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a valid name: use letters, digits and _"
    if name in {"cublas-tf32", *(variant.name for variant in variants())}:
        return f"the ladder has a {name!r} already"
    return None


def source(variant: "str | Kernel", *, standalone: bool = False) -> str:
    """The text of a kernel's file, which you can save, change, and load with ``kernel``.

    Parameters
    ----------
    variant
        A name from ``variants()``, or a custom kernel.
    standalone
        True gives one CUDA file that nvcc compiles to a program. The file contains the kernel, the
        headers that it includes, and a ``main`` that checks the kernel against a CPU loop and times
        it beside cuBLAS. Its first lines say how to compile it. Only rungs can be standalone.

    Returns
    -------
    str
        The text.

    Raises
    ------
    ValueError
        The ladder has no such name, or it is a library's kernel.
    """
    if isinstance(variant, Kernel) and not standalone:
        return variant.source
    rung = rung_named(variant, "standalone source" if standalone else "source")
    return standalone_source(rung) if standalone else rung.source or ""
