"""What `make wheels` and `make release` are made of, and the workflows of a public host."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgemm_kernels

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
if not WORKFLOWS:
    pytest.skip("an sdist has no workflows", allow_module_level=True)

pytest.importorskip("elftools")  # `make gpu-check` installs nothing
sys.path += [str(ROOT / "release"), str(ROOT)]
import device_code  # noqa: E402
import emulate  # noqa: E402
import version  # noqa: E402

from build_backend.description import description, repository  # noqa: E402

SCRIPTS = Path(sys.executable).parent


def test_workflows_are_valid_and_safe():
    schema = [SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
    for command in ([*schema, *WORKFLOWS], [SCRIPTS / "zizmor", "--offline", ROOT / ".github"]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_with_an_action_that_may_change_is_refused(tmp_path):
    text = WORKFLOWS[0].read_text(encoding="utf-8")
    pinned = re.compile(r"@[0-9a-f]{40} # ")
    assert pinned.search(text)
    (tmp_path / "loose.yml").write_text(pinned.sub("@", text))
    command = [SCRIPTS / "zizmor", "--offline", tmp_path / "loose.yml"]
    assert subprocess.run(command, capture_output=True).returncode != 0


@pytest.mark.skipif(
    sgemm_kernels.build_info().cuda_toolkit is None, reason="this build is for the CPU alone"
)
def test_the_gpus_code_is_measured_by_architecture():
    extension = Path(sgemm_kernels._core.__file__)
    found = device_code.sizes(extension.read_bytes())
    built_for = sgemm_kernels.build_info().architectures
    # The rungs for Hopper alone are in every build.
    assert set(found) == {name.replace("compute", "PTX compute") for name in built_for} | {"sm_90"}
    assert all(1_000 < size < extension.stat().st_size for size in found.values())
    assert device_code.is_for_every_gpu(extension.read_bytes()) == ("sm_75" in built_for)


def test_a_library_without_gpu_code_has_none():
    preload = ROOT / "sgemm_kernels/lib/libsgemm_kernels_blas.so"
    assert device_code.sizes(preload.read_bytes()) == {}


@pytest.mark.parametrize("test", emulate.CHOSEN)
def test_what_runs_in_an_emulator_runs_on_every_kernel(test):
    name, _, function = test.partition("::")
    text = (ROOT / "tests" / name).read_text(encoding="utf-8")
    assert re.search(rf"^def {function}\w*\((variant|rung), device", text, re.M)


@pytest.fixture
def tree(tmp_path):
    """A repository that is ready to release 1.2.3."""
    (tmp_path / "sgemm_kernels").mkdir()
    (tmp_path / "sgemm_kernels/_version.py").write_text('"""It."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-01-02\n\n## [1.2.2]\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def git(folder, *arguments):
    person = {
        f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    command = ["git", *arguments]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **person})


def test_a_tree_that_is_ready_has_a_version(tree):
    assert version.to_release(tree) == "1.2.3"


@pytest.mark.parametrize("heading", ["## [Unreleased]", "## [1.2.3]", "## [1.2.4] - 2026-01-02"])
def test_a_changelog_for_another_version_is_refused(tree, heading):
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    with pytest.raises(SystemExit, match=r"rename the section to '## \[1\.2\.3\] - YYYY-MM-DD'"):
        version.to_release(tree)


def test_a_tree_with_changes_is_refused(tree):
    (tree / "new").touch()
    with pytest.raises(SystemExit, match="commit these changes first"):
        version.to_release(tree)


def test_a_version_is_released_once(tree):
    git(tree, "tag", "v1.2.3")
    assert version.to_release(tree) == "1.2.3"  # a push of the tag releases it
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "more")
    with pytest.raises(SystemExit, match=r"the tag v1\.2\.3 is of another commit"):
        version.to_release(tree)


def test_links_of_the_description_lead_to_the_repository(tree):
    """[project.urls] has its address. Package indexes show README without the files beside it."""
    readme = '[a](docs/a.md#b) [c](#d) [e](https://e.example) <img src="f.svg">\n'
    (tree / "README.md").write_text(readme)
    (tree / "pyproject.toml").write_text("[project]\n")
    assert (repository(tree), description(tree)) == (None, readme)
    address = "https://host.example/them/it"
    (tree / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{address}"\n')
    assert description(tree) == (
        f"[a]({address}/blob/v1.2.3/docs/a.md#b) [c](#d) [e](https://e.example) "
        f'<img src="{address}/raw/v1.2.3/f.svg">\n'
    )
