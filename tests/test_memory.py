"""Cached memory: pinned memory for results, and GPU memory."""

import dataclasses

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import empty, memory
from sgemm_kernels._core import _usable_bytes
from sgemm_kernels._memory import Memory

from .support import OVER_HIP, printed_over_fake_cuda


def printed(code):
    return printed_over_fake_cuda(code)


def test_memory_is_frozen_and_prints_one_line():
    shown = Memory(2 * 10**9, 10**6, 64 * 10**9)
    assert str(shown) == "pinned memory: 2.000 GB live, 0.001 GB idle, limit 64.000 GB"
    with pytest.raises(dataclasses.FrozenInstanceError):
        shown.live_bytes = 1


@pytest.mark.parametrize(
    ("limit", "error"), [(-1, ValueError), (2**63, ValueError), ("1", TypeError), (1.0, TypeError)]
)
def test_invalid_limits_are_refused(limit, error):
    with pytest.raises(error, match="limit"):
        memory(limit=limit)


def test_any_integer_is_a_limit():
    first = memory().limit_bytes
    try:
        for limit in (np.int64(5), np.uint8(7), np.array(9)):
            assert memory(limit=limit).limit_bytes == int(limit)
    finally:
        memory(limit=first)


def test_the_default_limit_is_half_of_the_available_memory():
    assert memory().limit_bytes == _usable_bytes("/proc", "/sys/fs/cgroup") // 2


def cgroup(path, files, lines):
    for name, text in files.items():
        place = path / "cgroup" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")
    (path / "proc/self").mkdir(parents=True)
    (path / "proc/self/cgroup").write_text(lines)
    return _usable_bytes(path / "proc", path / "cgroup")


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"a/b/memory.max": "1000", "a/memory.max": "max"}, "0::/a/b\n"),
        ({"a/b/memory.max": "max", "a/memory.max": "1000"}, "0::/a/b\n"),
        ({"memory.max": "1000"}, "0::/not/seen/from/here\n"),
        ({"memory/a/memory.limit_in_bytes": "1000"}, "5:cpu:/a\n4:memory,hugetlb:/a\n"),
        ({"memory/memory.limit_in_bytes": "1000"}, "4:memory:/docker/1\n0::/\n"),
    ],
)
def test_the_limit_of_a_cgroup(tmp_path, files, lines):
    assert cgroup(tmp_path, files, lines) == 1000


def test_a_cgroup_without_a_limit(tmp_path):
    assert cgroup(tmp_path, {"a/memory.max": "max"}, "0::/a\n") == _usable_bytes(tmp_path, tmp_path)


def test_empty_for_any_device():
    assert (empty(3).shape, empty((2, 0)).shape, empty((2, 3, 4)).dtype) == ((3,), (2, 0), "f4")
    with pytest.raises((TypeError, ValueError)):
        empty((-1, 2))
    with pytest.raises((MemoryError, ValueError)):
        empty((2**40, 2**40))


@pytest.mark.fake_cuda
def test_a_result_behaves_like_an_array():
    code = """
        import copy, pickle
        A = uniform(rng, 30, 40)
        C = run("vec4", A, A.T, device="cuda")
        expected = run("vec4", A, A.T, device="cpu")
        assert C.flags.c_contiguous and C.flags.writeable and C.flags.aligned
        assert not C.flags.owndata and expected.flags.owndata
        for other in (pickle.loads(pickle.dumps(C)), copy.copy(C), copy.deepcopy(C), C[:], C.T.T):
            assert same_bits(other, expected)
        try:
            C.resize((5, 5))
        except ValueError:
            print("refused")
        C += 1
        child = os.fork()
        if child == 0:
            right = same_bits(C, expected + np.float32(1))
            del C
            os._exit(0 if right and run("vec4", A, A.T, device="cpu").flags.owndata else 1)
        print(os.waitpid(child, 0)[1])
        view = C[3:5]
        del C
        other = run("vec4", A, A.T, device="cuda")
        assert not np.shares_memory(view, other)
        assert same_bits(view, expected[3:5] + np.float32(1)), "its memory is not reused"
    """
    assert printed(code).split() == ["refused", "0"]


@pytest.mark.fake_cuda
def test_the_second_call_of_a_shape_allocates_nothing():
    code = """
        A, B = uniform(rng, 500, 300), uniform(rng, 300, 700)
        for fate in ("dropped", "dropped", "dropped"):
            run("vec4", A, B, device="cuda:1")
            print(fake.fake_cuda_allocations(), fake.fake_cuda_pinned())
    """
    _, second, third = printed(code).splitlines()
    assert second == third == printed(code).splitlines()[0]


@pytest.mark.fake_cuda
def test_a_dead_array_calls_no_device_and_its_memory_is_reused():
    code = """
        A = uniform(rng, 300, 300)
        places = set()
        for _ in range(20):
            C = run("smem", A, A, device="cuda")
            places.add(C.ctypes.data)
            before = fake.fake_cuda_calls()
            del C
            gc.collect()
            assert fake.fake_cuda_calls() == before
        print(len(places))
    """
    assert printed(code) == "1"


@pytest.mark.fake_cuda
def test_live_idle_and_limit():
    code = """
        memory = sgemm_kernels.memory
        A = sgemm_kernels.empty((1000, 1000))
        live = memory().live_bytes
        assert 4e6 <= live <= 4.5e6, live
        assert memory().live_bytes + memory().idle_bytes == fake.fake_cuda_pinned()
        del A
        assert memory().live_bytes == 0
        assert memory().idle_bytes == fake.fake_cuda_pinned() > 0
        assert memory(empty=True).idle_bytes == fake.fake_cuda_pinned() == 0

        memory(limit=10**7)
        kept = [sgemm_kernels.empty((1000, 1000)) for _ in range(5)]
        assert [a.flags.owndata for a in kept] == [False, False, True, True, True]
        assert fake.fake_cuda_pinned() <= 10**7
        del kept
        small = sgemm_kernels.empty(10**6 // 4)
        assert not small.flags.owndata, "idle memory of another size makes room"
        assert memory(limit=0).live_bytes > 0
        small[:] = 5
        del small
        ordinary = sgemm_kernels.empty(10**6)
        assert ordinary.flags.owndata and fake.fake_cuda_pinned() == 0
        memory(limit=10**9)
        fake.fake_cuda_refuse_pinning(1)
        assert sgemm_kernels.empty(10).flags.owndata and memory().live_bytes == 0
        assert run("naive", np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)).sum() == 27
        print("right")
    """
    assert printed(code) == "right"


@pytest.mark.fake_cuda
def test_any_limit_at_any_time():
    """The limit may be below the live memory: then results use ordinary memory until there is
    capacity again."""
    code = """
        memory, empty = sgemm_kernels.memory, sgemm_kernels.empty
        A = uniform(rng, 300, 300)
        expected = run("tile2d", A, A, device="cpu")
        alive = [(0, empty(10**6))]
        held = fake.fake_cuda_pinned()
        limits = [0, 1, 4096, held // 3, held - 1, held, held + 4096, 2**31, 2**63 - 1]
        for turn in range(1, 500):
            size = int(10 ** rng.uniform(0, 6.5))
            limit = limits[turn % len(limits)]
            memory(limit=limit, empty=turn % 2)
            before = fake.fake_cuda_pinned()
            array = empty(size)
            array[:] = turn
            assert fake.fake_cuda_pinned() <= max(before, limit)
            alive.append((turn, array))
            if len(alive) > 20:
                del alive[int(rng.integers(1, len(alive)))]
            del array
            if turn % 50 < len(limits):
                assert same_bits(run("tile2d", A, A, device="cuda:0"), expected), limit
        assert all((array == turn).all() for turn, array in alive[1:])
        sgemm_kernels._core._set_memory_limit(-5)
        assert memory(empty=True).limit_bytes == 0
        assert empty(2 * 10**7).flags.owndata
        del alive
        gc.collect()
        assert memory(limit=0).live_bytes == fake.fake_cuda_pinned() == 0
        print("right")
    """
    assert printed(code) == "right"


@pytest.mark.fake_cuda
def test_counters_start_at_zero_in_reused_memory():
    """Each launch fills scratch memory of the same size."""
    code = """
        A = uniform(rng, 30, 30)
        expected = run("vec4", A, A, device="cpu")
        fake.fake_cuda_set_scratch(4096)
        for _ in range(5):
            assert same_bits(run("vec4", A, A, device="cuda:0"), expected)
        print("right")
    """
    assert printed(code) == "right"


@pytest.mark.fake_cuda
def test_scratch_memory_is_freed_on_request_and_when_memory_is_short():
    code = """
        A, large = uniform(rng, 300, 300), uniform(rng, 1000, 1000)
        expected = run("vec4", large, large, device="cpu")
        fake.fake_cuda_set_memory(0, 20 << 20)
        fake.fake_cuda_set_scratch(10 << 20)
        for _ in range(3):
            run("vec4", A, A, device="cuda:0")
        assert 10 << 20 < fake.fake_cuda_live(0) < 12 << 20
        sgemm_kernels.memory(empty=True)
        assert fake.fake_cuda_live(0) == 0

        run("vec4", A, A, device="cuda:0")
        fake.fake_cuda_set_scratch(0)
        allocations = fake.fake_cuda_allocations()
        assert same_bits(run("vec4", large, large, device="cuda:0"), expected)
        assert fake.fake_cuda_allocations() == allocations + 3, "in one piece: it has room"

        fake.fake_cuda_set_scratch(16 << 20)
        assert np.isfinite(run("vec4", A, A, device="cuda:0")).all(), "idle operands' makes room"
        fake.fake_cuda_set_scratch(24 << 20)
        try:
            run("vec4", A, A, device="cuda:0")
        except OutOfMemoryError as error:
            print(error)
    """
    assert "cuda:0 is out of memory" in printed(code)


@pytest.mark.fake_cuda
def test_memory_that_stays_pinned_stays_mapped():
    """For example when the GPU is lost: then nothing can unpin the memory."""
    code = """
    array = sgemm_kernels.empty((300, 300))
    address = array.ctypes.data
    fake.fake_cuda_is_pinned.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    for call in range(1, 30):
        fake.fake_cuda_fail(call, 700)
        try:
            run("tile2d", array, array, device="cuda:0")
        except DeviceError:
            break
        except sgemm_kernels.UnsupportedVariantError:
            fake.fake_cuda_revive()  # on an AMD GPU, the first call asks for its properties
    del array
    gc.collect()
    sgemm_kernels.memory(empty=True)
    assert fake.fake_cuda_is_pinned(address, 4)
    print(len(ctypes.string_at(address, 4)), sgemm_kernels.memory().idle_bytes)
    """
    assert printed_over_fake_cuda(code) == "4 0"


@pytest.mark.fake_cuda
def test_threads_share_a_gpu_with_little_memory():
    """Each product fits in panels; a call waits for memory that other calls hold.

    Panels of K change the order of summation, so the operands are small integers."""
    code = """
    errors, A = [], rng.integers(-3, 4, (300, 300)).astype(np.float32)
    expected = run("tile2d", A, A, device="cpu")
    run("tile2d", A, A, device="cuda:0")
    sgemm_kernels.memory(empty=True)
    fake.fake_cuda_set_memory(0, 2 << 20)

    def work():
        try:
            for _ in range(5):
                assert same_bits(run("tile2d", A, A, device="cuda:0"), expected)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(errors), *errors[:1])
    """
    assert printed_over_fake_cuda(code) == "0"


@pytest.mark.fake_cuda
def test_a_result_waits_for_the_memory_of_a_running_product():
    code = """
    import time
    from tests.exporters import FAKES
    A = uniform(rng, 600, 600)
    exported = FAKES["ByDlpack"](A)
    expected = run("tile2d", A, A, device="cpu")
    large = np.tile(A, (1, 4)).copy()
    gc.collect()
    sgemm_kernels.memory(empty=True)
    fake.fake_cuda_set_memory(0, fake.fake_cuda_live(0) + (15 << 20))
    fake.fake_cuda_set_delay(20_000)
    operands = large, large.T.copy()
    thread = threading.Thread(target=lambda: run("tile2d", *operands, device="cuda:0"))
    thread.start()
    while fake.fake_cuda_live(0) < 14 << 20:
        time.sleep(0.001)
    print(same_bits(np.asarray(run("tile2d", exported, exported)), expected))
    thread.join()
    """
    assert printed_over_fake_cuda(code) == "True"


@pytest.mark.fake_cuda
def test_arrays_of_many_sizes_do_not_overlap():
    code = """
        alive = []
        for turn in range(2000):
            size = int(rng.integers(1, 10 ** int(rng.integers(1, 6))))
            array = sgemm_kernels.empty(size)
            array[:] = turn
            alive.append((turn, array))
            if rng.random() < 0.6:
                index = int(rng.integers(len(alive)))
                value, old = alive.pop(index)
                assert (old == value).all()
                del old
            del array
        assert all((array == value).all() for value, array in alive)
        assert all(array.ctypes.data % 64 == 0 for _, array in alive if not array.flags.owndata)
        held = sum(array.nbytes for _, array in alive)
        assert held <= sgemm_kernels.memory().live_bytes <= held * 1.13 + 512 * len(alive)
        print("right")
    """
    assert printed(code) == "right"


def test_the_exported_names():
    assert {"empty", "memory", "Memory"} <= set(sgemm_kernels.__all__)
    assert np.isfinite(memory().limit_bytes)


@pytest.mark.fake_cuda
def test_an_empty_product_does_not_reach_the_gpu():
    asked = 3 if OVER_HIP else 2  # first use of a GPU
    code = f"""
        A, B = np.zeros((0, 5), np.float32), np.zeros((5, 3), np.float32)
        run("auto", A, B)
        calls = fake.fake_cuda_calls()
        run("auto", A, B, device="cuda:1")
        run("auto", A, B)
        print(fake.fake_cuda_calls() - calls <= {asked})
    """
    assert printed(code) == "True"
