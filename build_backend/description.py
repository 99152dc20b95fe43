"""README as package indexes show it. They have no files beside it, so links need an address."""

import re
import tomllib
from pathlib import Path


def repository(root: Path) -> str | None:
    """The repository's address: `Repository` in [project.urls]. The only place that has it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address: str | None = project.get("urls", {}).get("Repository")
    return address


def description(root: Path) -> str:
    """README's text. With an address, its links lead to the files of the version's tag."""
    text = (root / "README.md").read_text(encoding="utf-8")
    address = repository(root)
    if address is None:
        return text
    source = (root / "sgemm_kernels/_version.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"', source, re.MULTILINE)
    text = re.sub(r"\]\((?!https?:|#)", f"]({address}/blob/v{version}/", text)
    return re.sub(r'\bsrc="(?!https?:)', f'src="{address}/raw/v{version}/', text)
