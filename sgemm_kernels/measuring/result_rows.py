"""The rows of one run, with functions to find and compare them."""

import math
from dataclasses import dataclass, field

from .._catalog import variants
from .measurement import LIBRARIES, UNMET, Measurement, Readings, Run
from .results_file import SCHEMA
from .shapes import Case, Shape, Size, as_shape, size_text


@dataclass(frozen=True, slots=True, repr=False)
class MeasurementRows:
    """The measurements of one run, case by case. ``Results`` adds tables, plots and files."""

    run: Run
    rows: tuple[Measurement, ...]
    interrupted: bool = False
    """True if the run was interrupted; the rows are the results until then."""
    readings: tuple[Readings, ...] = ()
    """Clock, power and temperature by shape and layout, if the GPU reports them."""
    schema: int = field(default=SCHEMA, compare=False)
    """Schema of the file that they were read from."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants measured, in the order of the rows."""
        return tuple(dict.fromkeys(row.variant for row in self.rows))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes measured, (M, N, K) or (batch, M, N, K), in the order of the rows."""
        return tuple(dict.fromkeys(row.shape for row in self.rows))

    @property
    def cases(self) -> tuple[Case, ...]:
        """The shapes measured, each with each layout measured, in the order of the rows."""
        return tuple(dict.fromkeys(row.case for row in self.rows))

    @property
    def clock_hz(self) -> float | None:
        """The highest clock at which a case was sampled; None if the GPU did not report it."""
        told = [each.clock_mhz for each in self.readings if each.clock_mhz is not None]
        return 1e6 * max(told) if told else None

    def __getitem__(self, key: tuple[str, Size] | tuple[str, Size, str]) -> Measurement:
        """``results["vec4", 4096]``, or with a layout ``results["vec4", (512, 16, 5000), "NT"]``.

        Parameters
        ----------
        key
            A variant, a size, and a layout if it is not row-major.

        Returns
        -------
        Measurement
            The matching row.

        Raises
        ------
        KeyError
            If there is no such row. The message lists the measured rows.
        """
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise TypeError(
                f"{key!r} is not a key: use results[name, size] or results[name, size, layout]"
            )
        row = self.find(*key)
        if row is None:
            cases = ", ".join(size_text(*case) for case in self.cases)
            known = f"{', '.join(self.variants)} at {cases}" if self.rows else "none"
            raise KeyError(f"{key} was not measured. Measured: {known}")
        return row

    def find(self, variant: str, size: Size, layout: str = "NN") -> Measurement | None:
        """The measurement of a variant at a size in a layout.

        Parameters
        ----------
        variant
            Its name.
        size
            N, (M, N, K) or (batch, M, N, K).
        layout
            One of LAYOUTS.

        Returns
        -------
        Measurement or None
            The row, or None.
        """
        wanted = variant, (as_shape(size), layout)
        return next((row for row in self.rows if (row.variant, row.case) == wanted), None)

    def label(self, variant: str) -> str:
        """``Measurement.label`` of a variant, at the largest shape where it is right.

        Parameters
        ----------
        variant
            Its name.

        Returns
        -------
        str
            The name in tables and plots.
        """
        rows = [row for row in self.rows if row.variant == variant]
        return max(rows, key=lambda row: (row.error.right, math.prod(row.shape))).label

    def over_previous(self, row: Measurement) -> float | None:
        """Speedup over the rung before it on the ladder, by medians.

        Parameters
        ----------
        row
            One of the rows.

        Returns
        -------
        float or None
            None if one of the two was not measured, for a reference (which is not a rung), and on
            the CPU device.
        """
        before = self._rung_before(row)
        if before is None or row.run.kind == "cpu" or not before.median_s or not row.median_s:
            return None
        return before.median_s / row.median_s

    def _rung_before(self, row: Measurement) -> Measurement | None:
        ladder = [variant.name for variant in variants() if variant.file is not None]
        if row.variant not in ladder[1:]:
            return None
        return self.find(ladder[ladder.index(row.variant) - 1], *row.case)

    def ratios(self, row: Measurement | None) -> tuple[str, str]:
        """``vs_cublas`` and ``over_previous`` as text.

        Parameters
        ----------
        row
            One of the rows, or None.

        Returns
        -------
        tuple of str
            Both ratios. A ratio has a mark if one of its two times has one; a missing ratio is a
            dash.
        """
        if row is None:
            return "-", "-"
        library = LIBRARIES.get(self.run.kind, "")
        reference, before = self.find(library.lower(), *row.case), self._rung_before(row)
        return (
            ratio_text(row.vs_cublas) + _mark(row.vs_cublas, row, reference),
            ratio_text(self.over_previous(row), "x") + _mark(self.over_previous(row), row, before),
        )


def ratio_text(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f}{unit}"


def _mark(figure: float | None, *rows: Measurement | None) -> str:
    unmet = any(row is not None and row.unmet for row in rows)
    return UNMET if figure is not None and unmet else ""
