"""AMD GPUs, as far as any build can test them: the checks of `make thorough GROUP=hip`, and lane
maps for wavefronts of 64. The same group runs tests/on_fake_hip.py, which tests the host's side."""

import pytest

from sgemm_kernels import kernel
from sgemm_kernels._catalog import kernel_file

from .native import hip_check

LOG = """
a.cu:1:0: remark: Function Name: one [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     VGPRs: 128 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     ScratchSize [bytes/lane]: 20 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     VGPRs Spill: 4 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     LDS Size [bytes/block]: 65536 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark: Function Name: two [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     ScratchSize [bytes/lane]: 0 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     VGPRs Spill: 0 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     LDS Size [bytes/block]: 65540 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark: Function Name: three [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     ScratchSize [bytes/lane]: 0 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     VGPRs Spill: 6 [-Rpass-analysis=kernel-resource-usage]
a.cu:1:0: remark:     LDS Size [bytes/block]: 0 [-Rpass-analysis=kernel-resource-usage]
"""


def test_kernels_that_spill_or_take_too_much_shared_memory_are_found():
    assert [name for name, _ in hip_check.reported(LOG)] == ["one", "two", "three"]
    assert hip_check.faults(LOG) == [
        "one keeps 20 bytes of each thread in memory",
        "two takes 65540 bytes of shared memory",
    ]


@pytest.mark.parametrize("lanes", [32, 64])
def test_the_lane_map_of_portable_is_right_for_warps_and_for_wavefronts(custom_cache, lanes):
    """AMD wavefronts have 64 or 32 threads, which divide the wavefront's part of C among them."""
    text = kernel_file("portable.cu").partition("#ifndef __CUDACC__")[0]
    assert text.count("LANES = warp_threads;") == 1
    text = text.replace("LANES = warp_threads;", f"LANES = {lanes};")
    own = kernel(text, name="mine")
    verdict = own.check()
    assert verdict, repr(verdict)
    assert own.variant.threads == 256
