"""How many threads compute: by CPU affinity, cgroup quota and SGEMM_KERNELS_THREADS."""

import pytest

from sgemm_kernels._core import _quota_cores
from sgemm_kernels._cores import check_asked

from .support import printed_by


def quota(path, files, lines):
    for name, text in files.items():
        file = path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    (path / "proc/self").mkdir(parents=True)
    (path / "proc/self/cgroup").write_text(lines)
    return _quota_cores(path / "proc", path / "cgroup")


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"a/b/cpu.max": "300000 100000", "a/cpu.max": "max 100000"}, "0::/a/b\n"),
        ({"a/b/cpu.max": "800000 100000", "a/cpu.max": "250000 100000"}, "0::/a/b\n"),
        ({"cpu.max": "201000 100000"}, "0::/not/seen/from/here\n"),
        (
            {"cpu/a/cpu.cfs_quota_us": "150000", "cpu/a/cpu.cfs_period_us": "50000"},
            "5:memory:/b\n4:cpu,cpuacct:/a\n",
        ),
    ],
)
def test_the_quota_of_a_cgroup(tmp_path, files, lines):
    assert quota(tmp_path, files, lines) == 3


def test_a_quota_below_one_core_counts_as_one(tmp_path):
    assert quota(tmp_path, {"a/cpu.max": "10000 100000"}, "0::/a\n") == 1


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({}, "0::/a\n"),
        ({"a/cpu.max": "max 100000"}, "0::/a\n"),
        (
            {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"},
            "4:cpu:/a\n",
        ),
    ],
)
def test_no_quota(tmp_path, files, lines):
    assert quota(tmp_path, files, lines) == 0


def test_a_name_in_another_encoding(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_bytes(b"0::/caf\xe9\n")
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    (folder / "cpu.max").write_text("200000 100000\n")
    assert _quota_cores(tmp_path, tmp_path) == 2


CORES = """
    import os
    from sgemm_kernels import _core, devices
    number = devices()[-1].multiprocessors
    _core._set_usable_cores(0, 1)
    print(number, len(os.sched_getaffinity(0)), devices()[-1].multiprocessors)
"""


def test_the_environment_sets_the_number():
    assert printed_by(CORES, SGEMM_KERNELS_THREADS="7").split()[0] == "7"


def test_a_quota_bounds_the_cores():
    assert printed_by(CORES).split()[2] == "1"


@pytest.mark.parametrize("value", ["0", "-1", "257", "many", "1.5"])
def test_an_invalid_number_is_ignored_with_a_warning(value, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_THREADS", value)
    with pytest.warns(RuntimeWarning, match=f"ignoring SGEMM_KERNELS_THREADS={value!r}"):
        check_asked()
    assert printed_by(CORES, SGEMM_KERNELS_THREADS=value).split()[2] == "1"


def test_the_requested_number_of_threads_computes():
    script = """
        import os, threading
        import numpy as np
        from sgemm_kernels import run
        A = np.ones((700, 700), np.float32)
        before = len(os.listdir("/proc/self/task"))
        call = threading.Thread(target=run, args=("naive", A, A), kwargs={"device": "cpu"})
        call.start()
        most = 0
        while call.is_alive():
            most = max(most, len(os.listdir("/proc/self/task")))
        print(most - before - 1)
    """
    assert printed_by(script, SGEMM_KERNELS_THREADS="5") == "5"
