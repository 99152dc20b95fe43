"""The recipe of docs/use/several_gpus.md, on a cluster of local CPU devices."""

import re
from pathlib import Path

import pytest

from .support import printed_by

RECIPE = Path(__file__).parent.parent / "docs/use/several_gpus.md"


def test_the_recipe():
    pytest.importorskip("distributed")
    _, section = RECIPE.read_text(encoding="utf-8").split("with Dask\n")
    functions, _ = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    code = f"""{functions}
from dask.distributed import Client, LocalCluster

with (
    LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    Client(cluster) as client,
):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-8, 9, shape).astype("f4") for shape in ((90, 70), (70, 50)))
    A, B = da.from_array(a, chunks=(32, 32)), da.from_array(b, chunks=(20, 24))
    C = matmul(A, B, variant="vec4", device="cpu")
    assert (C.shape, C.dtype, C.chunks) == ((90, 50), "f4", ((32, 32, 26), (24, 24, 2)))
    futures = client.compute(C.to_delayed().ravel().tolist())
    client.gather(futures)
    workers = {{worker for where in client.who_has(futures).values() for worker in where}}
    print(np.array_equal(C.compute(), a @ b), len(workers))
"""
    assert printed_by(code) == "True 2"
