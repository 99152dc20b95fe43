"""NumPy's own tests of matmul, with float32 products computed by run()."""

import numpy as np
import pytest

from sgemm_kernels import run

suite = pytest.importorskip("numpy._core.tests.test_multiarray")


def matmul(A, B, /, out=None, **keywords):
    """np.matmul; float32 arrays are multiplied by run()."""
    arrays = [X for X in (A, B, out) if X is not None]
    if keywords or not all(type(X) is np.ndarray and X.dtype == np.float32 for X in arrays):
        return np.matmul(A, B, out=out, **keywords)
    return run(matmul.variant, A, B, out=out, device=matmul.device)


@pytest.fixture(autouse=True, params=["tile2d", "auto"])
def kernel(request, device):
    matmul.variant, matmul.device = request.param, device


class OfFloats:
    types = "ff"  # some tests leave out the first one
    matmul = staticmethod(matmul)


class TestCommon(OfFloats, suite.MatmulCommon):
    pass


class TestMatmul(OfFloats, suite.TestMatmul):
    pass
