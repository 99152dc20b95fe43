"""The results of a run: tables, files and plots."""

import csv
import importlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._output import write_text
from .._table import as_html, markdown, table
from .measurement import LIBRARIES, UNMET_NOTE
from .result_rows import MeasurementRows, ratio_text
from .results_file import document_of, fields_of, read_document, write_json
from .shapes import size_text

if TYPE_CHECKING:
    from .._style import Picture

_COLUMNS = (
    *("variant", "M", "N", "K", "median_s", "iqr_s", "samples", "gflops", "vs_cublas"),
    *("share_of_peak", "call_median_s"),
    *("layout", "batch", "timed_by", "precision", "error_relative", "error_worst_share"),
    *("operand_sets", "unmet", "timer", "cache", "device"),
    *("driver", "cuda_toolkit", "cublas", "ffma_gflops", "csrc_hash", "date"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Results(MeasurementRows):
    """Measurements of one run, case by case. Prints as a table."""

    def plot(self, kind: str = "speed", **options: Any) -> "Picture":
        """Plots the results with ``plotting.plot``; needs the extra 'plot'.

        Parameters
        ----------
        kind
            One of KINDS.
        **options
            Other options of ``plotting.plot``.

        Returns
        -------
        Picture
            A matplotlib figure.
        """
        from .plotting import plot

        return plot(self, kind, **options)

    def to_json(self, path: str | Path) -> None:
        """Writes the results to a file that ``from_json`` reads.

        Parameters
        ----------
        path
            The file to write; compressed if its name ends in .gz.
        """
        write_json(path, document_of(self.run, self.rows, self.interrupted, self.readings))

    @classmethod
    def from_json(cls, path: str | Path) -> "Results":
        """Reads results, also files of older versions.

        Parameters
        ----------
        path
            A file that ``to_json`` wrote.

        Returns
        -------
        Results
            The results in the file.

        Raises
        ------
        ValueError
            If the file has no results, or has a newer schema than this version supports.
        """
        return cls(*read_document(path))

    def to_csv(self, path: str | Path) -> None:
        """Writes one line per row, with the facts about the run in each. Omits the samples.

        Parameters
        ----------
        path
            The file to write.
        """
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, _COLUMNS)
        writer.writeheader()
        writer.writerows(self._records())
        write_text(path, text.getvalue())

    def to_pandas(self) -> Any:
        """The rows as a pandas table.

        Returns
        -------
        pandas.DataFrame
            A line for each row, with the columns of ``to_csv``.

        Raises
        ------
        ImportError
            If pandas is missing.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            message = "to_pandas needs pandas: pip install pandas"
            raise ImportError(message, name=error.name) from None
        return pandas.DataFrame(self._records(), columns=list(_COLUMNS))

    def _records(self) -> list[dict[str, Any]]:
        """The figures of each row, by _COLUMNS."""
        records = []
        for row in self.rows:
            places = {**fields_of(row.run), **fields_of(row.run.protocol), **fields_of(row)}
            figures = {name: getattr(row, name, places.get(name)) for name in _COLUMNS}
            figures |= {"samples": len(row.samples_s), "unmet": "; ".join(row.unmet)}
            figures |= {
                "error_relative": row.error.relative,
                "error_worst_share": row.error.worst_share,
            }
            records.append(figures)
        return records

    def to_markdown(self) -> str:
        """The table of ``repr`` in Markdown.

        Returns
        -------
        str
            The table, and an explanation of its marks.
        """
        return "\n\n".join([markdown(*self._cells()), *self._marks()])

    def __repr__(self) -> str:
        notes = "\ninterrupted: these are the results until then" if self.interrupted else ""
        if not self.rows:
            return f"{self.run.describe()}{notes}\nnothing measured"
        read = [f"while sampling {each}" for each in self.readings]
        marks = "".join(f"\n{line}" for line in (*self._marks(), *read))
        return f"{self.run.describe()}{notes}\n{table(*self._cells())}{marks}"

    def _repr_html_(self) -> str:
        note = self.run.describe() + ("\ninterrupted" if self.interrupted else "")
        return as_html("", *self._cells(), "\n".join([note, *self._marks()]))

    def _marks(self) -> list[str]:
        return [UNMET_NOTE] if any(row.unmet for row in self.rows) else []

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        return self._by_case() if len(self.cases) > 1 else self._in_detail()

    def _by_case(self) -> tuple[list[str], list[list[str]]]:
        """One line per variant and one column per case, with ratios at the largest shape."""
        on_gpu = self.run.kind != "cpu"
        largest = max(self.cases, key=lambda case: math.prod(case[0]))
        header = ["TFLOP/s" if on_gpu else "call, ms"]
        header += [size_text(*case) for case in self.cases]
        if on_gpu:
            of_library = f"of {LIBRARIES[self.run.kind]}, {size_text(*largest)}"
            header += [of_library, "over the rung before"]
        lines = []
        for variant in self.variants:
            line = [self.label(variant)]
            for case in self.cases:
                row = self.find(variant, *case)
                if row is None:
                    line.append("-")
                elif row.gflops is None or row.median_s is None:
                    line.append("wrong" if not row.error.right else "-")
                else:
                    line.append(row.marked(row.gflops / 1e3 if on_gpu else 1e3 * row.median_s))
            if on_gpu:
                line += self.ratios(self.find(variant, *largest))
            lines.append(line)
        return header, lines

    def _in_detail(self) -> tuple[list[str], list[list[str]]]:
        """One line per variant, for a single case."""
        on_gpu = self.run.kind != "cpu"
        size = size_text(*self.cases[0]) if self.rows else ""
        header = [size, "kernel, ms" if on_gpu else "call, ms", "IQR", "samples"]
        if on_gpu:
            of_library = f"of {LIBRARIES[self.run.kind]}"
            header += ["TFLOP/s", of_library, "of peak", "over the rung before"]
            header += ["whole call, ms"]
        header += ["worst error / bound"]
        lines = []
        for row in self.rows:
            line = [row.label]
            if row.median_s is None or row.iqr_s is None or row.gflops is None:
                line += ["wrong" if not row.error.right else "-"] + ["-"] * (len(header) - 3)
            else:
                line += [row.marked(1e3 * row.median_s), f"{row.iqr_s / row.median_s:.1%}"]
                line += [str(len(row.samples_s))]
                if on_gpu:
                    of_cublas, over_previous = self.ratios(row)
                    line += [row.marked(row.gflops / 1e3), of_cublas]
                    line += [ratio_text(row.share_of_peak), over_previous]
                    call = row.call_median_s
                    line += ["-" if call is None else f"{1e3 * call:.3g}"]
            line += [f"{row.error.worst_share:.2g}"]
            lines.append(line)
        return header, lines
