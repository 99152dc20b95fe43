"""Runs timm's own tests of ten models with PyTorch's float32 products in these kernels.

    python tests/native/timm_check.py cuda
    python tests/native/timm_check.py cpu -k "forward and mixer"

Needs PyTorch, torchvision and pytest with pytest-timeout. The first run downloads timm's source
package, which has the tests, into build. Each model runs forward, backward, under torch.fx and as
TorchScript, and two computations of the same features must agree. On the CPU, all tests take four
minutes, so pytest's arguments choose some. A warning that names this package or a replaced kernel
is an error. Exits with 1 if a test fails, if no product was taken, or if one failed.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path

import pytest
import torch

from sgemm_kernels import torch as operators

BUILD = Path(__file__).resolve().parents[2] / "build"
PACKAGE = "timm-1.0.31"
MODELS = (
    "coat_lite_tiny",
    "convit_tiny",
    "convnext_atto",
    "eva02_tiny_patch14_224",
    "gcvit_xxtiny",
    "mixer_s32_224",
    "pvt_v2_b0",
    "swin_tiny_patch4_window7_224",
    "vit_tiny_patch16_224",
    "xcit_nano_12_p16_224",
)
TESTS = {  # with their batches
    "forward": 1,
    "backward": 2,
    "forward_intermediates": 1,
    "forward_fx": 1,
    "forward_torchscript": 1,
}


def sources() -> Path:
    """The folder of timm's source package."""
    folder = BUILD / PACKAGE
    if not folder.exists():
        download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        options = ["--quiet", "--no-deps", "--no-binary=timm", "--dest", BUILD]
        subprocess.run([*download, *options, PACKAGE.replace("-", "==")], check=True)
        with tarfile.open(BUILD / f"{PACKAGE}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return folder


class OurWarnings:
    """A plugin of pytest that makes errors of them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("filterwarnings", r"error:.*(sgemm_kernels|registered kernel)")
        config.addinivalue_line("filterwarnings", r"error:::sgemm_kernels(\..*)?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("device", choices=("cpu", "cuda"))
    chosen, options = parser.parse_known_args()
    os.chdir(sources())
    os.environ |= {"TORCH_DEVICE": chosen.device, "HF_HUB_OFFLINE": "1"}
    torch.set_default_device(chosen.device)
    with warnings.catch_warnings(action="error"):
        if chosen.device == "cuda":
            operators.enable()
        else:
            operators.dispatch_override("CPU", "auto", 0.0)
    tests = [
        f"tests/test_models.py::test_model_{test}[{batch}-{model}]"
        for model in MODELS
        for test, batch in TESTS.items()
    ]
    status = pytest.main(["-q", "-p", "no:cacheprovider", *options, *tests], [OurWarnings()])
    counts = operators.stats()
    print(f"PyTorch {torch.__version__}, {PACKAGE}, {chosen.device}: {counts}")
    outcomes = {outcome for each in counts.values() for outcome in each}
    if "taken" not in outcomes or outcomes & {"failed", "raised"}:
        print(f"products failed, or none was taken: {operators.last_failure()}")
        return 1
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
