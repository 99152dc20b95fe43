"""Describes what a wheel contains besides this package's own code: a CycloneDX SBOM."""

import re
import zipfile
from email import message_from_string
from hashlib import sha256
from pathlib import Path

from cyclonedx.model import HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def describe(wheel: Path, cuda: str) -> Bom:
    """The SBOM of a wheel whose extension was linked with the CUDA runtime of this version."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    package = Component(
        type=ComponentType.LIBRARY,
        name=metadata["Name"],
        version=metadata["Version"],
        purl=PackageURL("pypi", name=metadata["Name"], version=metadata["Version"]),
        licenses=[DisjunctiveLicense(id=metadata["License-Expression"])],
        hashes=[HashType.from_hashlib_alg("sha256", sha256(wheel.read_bytes()).hexdigest())],
    )
    runtime = Component(
        type=ComponentType.LIBRARY,
        name="CUDA runtime",
        version=cuda,
        description="libcudart_static.a, linked into the extension and the C library",
        supplier=OrganizationalEntity(name="NVIDIA"),
        licenses=[
            DisjunctiveLicense(
                name="NVIDIA CUDA Toolkit End User License Agreement",
                url=XsUri("https://docs.nvidia.com/cuda/eula/"),
            )
        ],
    )
    bom = Bom()
    bom.metadata.component = package
    needed = []
    for requirement in metadata.get_all("Requires-Dist") or []:
        if "extra ==" not in requirement:
            its_name = re.match(r"[\w.-]+", requirement)[0]
            needed.append(
                Component(
                    type=ComponentType.LIBRARY,
                    name=its_name,
                    description=f"needed at run time, not contained: {requirement}",
                    purl=PackageURL("pypi", name=its_name),
                )
            )
    for component in (runtime, *needed):
        bom.components.add(component)
    bom.register_dependency(package, [runtime, *needed])
    return bom


def text(wheel: Path, cuda: str) -> str:
    """The SBOM of a wheel as JSON."""
    return JsonV1Dot6(describe(wheel, cuda)).output_as_string(indent=2)
