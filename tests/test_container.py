"""The container for learners: its file can be read, and an engine can build it."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent


def engine():
    """An engine that runs: Docker's client alone cannot build."""
    for name in ("docker", "podman"):
        if (
            shutil.which(name)
            and subprocess.run([name, "info"], capture_output=True).returncode == 0
        ):
            return name
    return None


def instructions():
    """Each instruction of the Dockerfile with its arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    whole = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [tuple(line.split(" ", 1)) for line in whole.splitlines() if line]


def arguments_of(name):
    return [arguments for each, arguments in instructions() if each == name]


def test_instructions_are_known_and_begin_with_an_image():
    known = {"FROM", "RUN", "ARG", "COPY", "USER", "WORKDIR", "EXPOSE", "CMD"}
    assert {name for name, _ in instructions()} == known
    assert instructions()[0][0] == "FROM"


def test_the_image_has_a_python_that_the_package_supports():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (image,) = arguments_of("FROM")
    minor = int(re.fullmatch(r"python:3\.(\d+)-slim-bookworm", image)[1])
    assert minor >= int(settings["requires-python"].removeprefix(">=3."))
    (extra,) = re.findall(r"/source\[(\w+)\]", " ".join(arguments_of("RUN")))
    assert extra in settings["optional-dependencies"]


def test_its_commands_are_commands_of_a_shell():
    for command in arguments_of("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)
    (start,) = arguments_of("CMD")
    assert json.loads(start)[:2] == ["jupyter", "lab"]


def test_the_image_has_what_git_has_and_no_outputs():
    def patterns(name):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return {line.strip("/").removeprefix("**/") for line in lines if line[:1] not in ("#", "")}

    assert patterns(".dockerignore") == patterns(".gitignore") | {".git"}


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_judges_a_level():
    if (builder := engine()) is None:
        pytest.skip("neither Docker nor Podman runs here")
    build = [builder, "build", "--quiet", "--tag", "sgemm_kernels_test", str(ROOT)]
    subprocess.run(build, check=True)
    run = [builder, "run", "--rm", "sgemm_kernels_test"]
    try:
        subprocess.run([*run, "sgemm-kernels", "check", "--device", "cpu"], check=True)
        judged = subprocess.run(
            [*run, "sgemm-kernels", "learn", "--folder", "/tmp/levels"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert judged.returncode == 1
        assert "race: thread (1, 0) writes C[0, 0]" in judged.stdout
        subprocess.run([*run, "jupyter", "lab", "--version"], check=True)
    finally:
        subprocess.run([builder, "rmi", "--force", "sgemm_kernels_test"], check=True)
