"""The result of a proof, as text and as a file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._output import write_text
from .._table import table
from .hard_cases import HardCase
from .models import Model
from .speed import Fit, Timed
from .steps import Compared

SCHEMA = 1
NOT_VERIFIED = (
    "bits of operands that were not drawn: the comparison takes samples",
    "sums that overflow float32, which the kernels never have",
    "the test suite and compute-sanitizer on this GPU: make gpu-check",
)
"""What a proof leaves open, on every GPU."""


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """What ``prove`` found out about a GPU's tensor cores. ``print`` shows it as text."""

    device: str
    """The GPU's name."""
    compute_capability: tuple[int, int]
    date: str
    """In UTC, in the form of ISO 8601."""
    driver: str | None
    """Newest CUDA version that the driver supports."""
    csrc_hash: str
    """``build_info().csrc_hash`` of the build."""
    version: str
    """Of the package."""
    model: Model | None
    """The published model; None if there is none for this compute capability."""
    compared: tuple[Compared, ...] = ()
    """Single products of tensor cores, by kind of operands."""
    hard_cases: tuple[HardCase, ...] = ()
    """Products of ``mma`` beside the error bound."""
    times: tuple[Timed, ...] = ()
    """Times of ``simt`` and ``mma``."""
    fit: Fit | None = None
    """Constants of the estimate of ``mma``, fitted to the times."""
    refusal: str | None = None
    """Why the tensor cores are not proven; None if they are."""

    @property
    def proven(self) -> bool:
        """True if ``auto`` uses the tensor cores of this GPU from now on."""
        return self.refusal is None

    def to_json(self, path: str | Path) -> None:
        """Writes everything to a file, which you can send: see docs/use/devices.md.

        Parameters
        ----------
        path
            The file to write.

        Raises
        ------
        OSError
            If the file cannot be written; an existing file then stays unchanged.
        """
        document = {"proof_schema": SCHEMA, "proven": self.proven, **asdict(self)}
        document["not_verified"] = NOT_VERIFIED
        write_text(path, json.dumps(document, indent=1) + "\n")

    def __str__(self) -> str:
        major, minor = self.compute_capability
        parts = [f"{self.device}, compute capability {major}.{minor}"]
        if self.model is not None:
            parts.append(f"Model: {self.model}. Sources: {'; '.join(self.model.sources)}.")
        if self.compared:
            rows = [
                (each.kind, f"{each.results:,}", f"{each.differing:,}") for each in self.compared
            ]
            parts.append(table(("operands of one mma.sync", "results", "bits differ"), rows))
        if self.hard_cases:
            worst = max(self.hard_cases, key=lambda each: each.worst_share)
            count = len(self.hard_cases)
            parts.append(
                f"Error bound: {count} products of mma with hard operands; the worst "
                f"error is {worst.worst_share:.3f} of the bound ({worst.name}, K = {worst.K})."
            )
        if self.times:
            speeds = [
                (f"{t.M} x {t.N} x {t.K}", f"{1e6 * t.simt_s:.1f}", f"{1e6 * t.mma_s:.1f}",
                 f"{t.simt_s / t.mma_s:.2f}")
                for t in self.times
            ]  # fmt: skip
            parts.append(table(("M x N x K", "simt, us", "mma, us", "speedup"), speeds))
        parts.append(self._verdict())
        return "\n\n".join(parts)

    def _verdict(self) -> str:
        if self.refusal is not None:
            return f"NOT proven: {self.refusal}"
        rungs = "waves and fused, as before" if self.compute_capability == (9, 0) else "mma"
        return (
            f"Proven: auto uses the tensor cores of this GPU ({rungs}) if it estimates that they "
            "take less time.\nNot verified:\n" + "\n".join(f"- {each}" for each in NOT_VERIFIED)
        )

    def __repr__(self) -> str:
        return f"<Proof of {self.device}: {'proven' if self.proven else 'NOT proven'}>"


def read_document(path: Path) -> dict[str, Any]:
    """A file of ``Proof.to_json``. Raises ValueError if it is none, or contradicts itself."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        compared, hard = document["compared"], document["hard_cases"]
        right = (
            bool(compared)
            and all(each["results"] > 0 and each["differing"] == 0 for each in compared)
            and bool(hard)
            and all(each["worst_share"] <= 1 for each in hard)
        )
        known = document["proof_schema"] == SCHEMA
        whole = all(document[key] for key in ("device", "compute_capability", "csrc_hash", "date"))
        proven, refusal = document["proven"], document["refusal"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a file of 'sgemm-kernels prove': {error!r}") from None
    if not known or not whole or proven != (refusal is None) or (proven and not right):
        raise ValueError(
            f"{path} contradicts itself or is of another version of 'sgemm-kernels prove': write "
            "it again"
        )
    return dict(document)
