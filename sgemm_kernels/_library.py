"""Where the C library, its header and its build files are."""

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def get_include() -> str:
    """Return the folder of ``sgemm_kernels.h``, and of its Fortran module.

    Returns
    -------
    str
        An absolute path.
    """
    return str(_FOLDER / "include")


def get_library_dir() -> str:
    """Return the folder of ``libsgemm_kernels.so`` and ``libsgemm_kernels_blas.so``.

    Returns
    -------
    str
        An absolute path.
    """
    return str(_FOLDER / "lib")
