"""release/hf_kernel.py: the operators for PyTorch as a package in Hugging Face's format, which its
loader reads from a folder, without a network."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .support import printed_by

ROOT = Path(__file__).parent.parent
BUILDER = ROOT / "release/hf_kernel.py"
if not BUILDER.exists():
    pytest.skip("an sdist has no release/", allow_module_level=True)

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("kernels", reason="Hugging Face's loader: make thorough installs it")

sys.path.append(str(ROOT / "release"))
import hf_kernel  # noqa: E402

from build_backend.toolkit import Toolkit  # noqa: E402

# The libraries of every Linux system. The CUDA runtime is linked statically.
OF_THE_SYSTEM = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux.*)\.so"
)

LOAD = """
import sys
from pathlib import Path
import pytest, torch
from kernels import get_local_kernel

def load(folder):
    return get_local_kernel(Path(folder), backend={backend!r})

ours = load({folder!r})
place = "cuda" if {backend!r} == "cuda" and torch.cuda.is_available() else "cpu"
a, b = (torch.randn(shape, device=place).round() for shape in ((3, 37, 41), (3, 41, 29)))
c = torch.ones(29, device=place)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel")
    done = subprocess.run([sys.executable, BUILDER, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (folder / "build").iterdir()
    assert made == Path(done.stdout.splitlines()[-1])
    return made


@pytest.fixture
def printed(package):
    """Runs code after LOAD and returns what it prints."""
    backend = json.loads((package / "metadata.json").read_text())["backend"]["type"]
    if backend == "cuda" and not torch.version.cuda:
        pytest.skip("a build with CUDA needs a PyTorch with CUDA")

    def run(code):
        start = LOAD.format(folder=str(package.parent.parent), backend=backend)
        return printed_by(start + code, HF_HUB_OFFLINE="1")

    return run


def test_the_loader_takes_the_package_and_its_products_are_pytorchs(printed):
    code = """
# Whole numbers: every order of summation gives these values.
assert torch.equal(ours.mm(a[0], b[0]), a[0] @ b[0])
assert torch.equal(ours.mm(a[0], b[0], variant="naive"), a[0] @ b[0])
assert torch.equal(ours.bmm(a, b), a @ b)
assert torch.equal(ours.addmm(c, a[0], b[0], beta=2, alpha=3), 2 * c + 3 * (a[0] @ b[0]))
assert torch.equal(ours.baddbmm(c, a, b), c + a @ b)
out = torch.empty(37, 29, device=place)
ours.mm(a[0], b[0], out=out)
assert torch.equal(out, a[0] @ b[0])
x, y = (each[0].clone().requires_grad_() for each in (a, b))
torch.library.opcheck(ours.mm.default, (x, y))  # compilers and autograd
with pytest.raises(RuntimeError, match="sgemm_kernels::mm: .*variant"):
    ours.mm(a[0], b[0], variant="none")
print(sorted(name for name in sys.modules if name.split(".")[0] == "sgemm_kernels"))
"""
    assert printed(code) == "[]"


def test_two_builds_and_the_package_do_not_share_a_namespace(printed, package, tmp_path):
    other = tmp_path / package.name
    shutil.copytree(package, other)
    described = json.loads((other / "metadata.json").read_text())
    (other / "metadata.json").write_text(json.dumps({**described, "id": "another_build"}))
    code = f"""
import sgemm_kernels.torch
another = load({str(tmp_path)!r})
for operator in (ours.mm, another.mm, torch.ops.sgemm_kernels.mm):
    assert torch.equal(operator(a[0], b[0]), a[0] @ b[0])
    print(operator)
"""
    namespaces = [described["id"], "another_build", "sgemm_kernels"]
    assert printed(code).split() == [f"{namespace}.mm" for namespace in namespaces]


def test_the_digests_are_those_of_the_files(package):
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    read = Metadata.read_from_file(package / "metadata.json")
    read.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, package))


def test_the_id_is_a_name_that_depends_on_every_file(package, tmp_path):
    described = json.loads((package / "metadata.json").read_text())
    ids = [described["id"]]
    assert ids[0].isidentifier()
    unlisted = shutil.ignore_patterns("metadata.json", "__pycache__")
    copy = shutil.copytree(package, tmp_path / "copy", ignore=unlisted)
    assert hf_kernel.metadata(copy, described["backend"]) == described
    files = sorted(copy.iterdir())
    for file in files:
        file.write_bytes(file.read_bytes() + b"\n")
        ids.append(hf_kernel.metadata(copy, described["backend"])["id"])
    assert len(set(ids)) == 1 + len(files)


def test_the_variant_names_the_toolkit_and_the_metadata_the_architectures():
    toolkit = Toolkit(Path("nvcc"), Path("libcudart_static.a"), "13.0.88", (75, 90, 120))
    kind, backend = hf_kernel.compute_kind(toolkit)
    assert (kind, backend) == ("cu130", {"type": "cuda", "archs": ["7.5", "9.0", "12.0+PTX"]})
    assert hf_kernel.compute_kind(None) == ("cpu", {"type": "cpu"})


def test_the_library_needs_no_other_library(package):
    listed = subprocess.run(
        ["readelf", "-d", package / "_core.abi3.so"], capture_output=True, text=True, check=True
    ).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", listed)
    assert needed
    assert [name for name in needed if not OF_THE_SYSTEM.match(name)] == []
