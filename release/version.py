"""The version that a tree releases."""

import re
import subprocess
import sys
from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def to_release(root: Path) -> str:
    """The version that the tree at root releases. Exits if the tree is not ready."""
    (number,) = re.findall(
        r'^__version__ = "(.+)"', (root / "sgemm_kernels/_version.py").read_text(), re.M
    )
    newest = re.search(r"^## \[(.+?)\](?: - (.+))?$", (root / "CHANGELOG.md").read_text(), re.M)
    found = newest[0] if newest else "no version"
    if not re.fullmatch(rf"## \[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d", found):
        sys.exit(
            f"CHANGELOG.md begins with {found!r}, but the version is {number}: rename the section "
            f"to '## [{number}] - YYYY-MM-DD', or correct sgemm_kernels/_version.py"
        )
    if changed := git(root, "status", "--porcelain"):
        sys.exit(f"commit these changes first:\n{changed}")
    if git(root, "tag", "--list", f"v{number}", "--no-contains", "HEAD"):
        sys.exit(
            f"the tag v{number} is of another commit: raise the version in "
            "sgemm_kernels/_version.py"
        )
    return number
