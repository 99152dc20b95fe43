"""Reads and writes measurements as JSON. benchmarks/README.md explains the format."""

import dataclasses
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from .._launches import launches
from .._output import write, write_text
from .._table import one_line
from .measurement import LIBRARIES, Accuracy, Measurement, Protocol, Readings, Run
from .shapes import LAYOUTS, Case, as_shape
from .sources import OLDER, is_older

SCHEMA = 4
"""Version of the format. It increases when a field changes meaning or is removed; new fields are
optional."""

_MOST_DIGITS = 18
_COLUMNS = 90

_SAMPLES = ("samples", "call_samples")  # in nanoseconds in files, which makes them shorter

SAME_TIMES = frozenset({2, 3, 4})
"""Schemas with the same sampling, whose runs can be compared."""


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises ValueError, with the path, if it is not JSON, is nested
    too deeply, or has a number of more than 18 digits."""
    try:
        return _loads(path)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def write_json(path: str | Path, document: dict[str, Any]) -> None:
    """Writes what ``dump`` makes, compressed if the name ends in .gz."""
    text = dump(document) + "\n"
    if str(path).endswith(".gz"):
        packed = gzip.compress(text.encode("utf-8"), mtime=0)
        write(path, lambda file: file.write(packed))
    else:
        write_text(path, text)


def _loads(path: str | Path) -> Any:
    data = Path(path).read_bytes()
    if str(path).endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be unpacked: {error}") from None
    text = data.decode("utf-8")
    return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_float)


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def dump(document: dict[str, Any]) -> str:
    """JSON with one line per row, so that files can be compared line by line."""
    return _laid_out(document, "")


def _laid_out(value: Any, indent: str) -> str:
    """An object has a line per entry, and a list a line per object in it. What fits into one line
    has one."""
    text = json.dumps(value, allow_nan=False)
    if isinstance(value, dict) and (not indent or len(text) > _COLUMNS):
        entries = (f"{json.dumps(name)}: {_laid_out(each, indent + ' ')}"
                   for name, each in value.items())  # fmt: skip
        return "{\n" + ",\n".join(f"{indent} {entry}" for entry in entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        rows = (json.dumps(each, allow_nan=False, separators=(",", ":")) for each in value)
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return text


def origin(*files: Path) -> str:
    """Names and digests of result files, and whether they are of older sources; a committed picture
    carries those of the files that it shows."""
    digests = (hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files)
    told = [f"{file.name} {each}" for file, each in zip(files, digests, strict=True)]
    return ", ".join([*told, *([OLDER] if any(map(file_is_older, files)) else [])])


def file_is_older(file: Path) -> bool:
    """True if a file has results of other sources than those of this clone."""
    document = read_json(file)
    return is_older(document.get("run", document).get("sources_hash"), experiment_of(document))


def facts_of(document: Mapping[str, Any]) -> str:
    """The device, toolkit, sources and date of an experiment's result, with the note of
    ``with_age``."""
    name = "csrc" if "csrc_hash" in document else "sources"
    toolkit, sources = f"CUDA {document['cuda_toolkit']}", f"{name} {document[f'{name}_hash']}"
    facts = ", ".join([document["device"], toolkit, sources, document["date"][:10]])
    return with_age(one_line(facts), document)


def with_age(facts: str, document: Mapping[str, Any]) -> str:
    """The facts of a result, with a note if its sources are older than those of this clone."""
    older = is_older(document.get("sources_hash"), experiment_of(document))
    return f"{facts}, {OLDER}" if older else facts


def experiment_of(document: Mapping[str, Any]) -> str:
    """The experiment that wrote a document, as ``sources_hash`` takes it."""
    if "space" in document:  # Tuning.to_json
        return f"tuning-{document['kernel']}"
    if "experiment" in document:
        return str(document["experiment"])
    return experiment_with(row.get("variant", "") for row in document.get("rows", ()))


def experiment_with(names: Iterable[str]) -> str:
    """The experiment of results of ``measure`` with these variants."""
    return "" if launches().keys().isdisjoint(names) else "ladder"


def fields_of(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _pick(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance of the class. Ignores values of fields that only newer versions have."""
    known = {field.name: field.type for field in dataclasses.fields(cls)}
    picked = {name: value for name, value in values.items() if name in known}
    for name, value in picked.items():
        if not _is_of(known[name], value):
            raise ValueError(f"{name} is {value!r}")
    return cls(**picked)


def _is_of(kind: Any, value: object) -> bool:
    """True if a value has the type of a field. Does not check a tuple's items."""
    if isinstance(kind, UnionType):
        return any(_is_of(each, value) for each in get_args(kind))
    return isinstance(value, (float, int) if kind is float else get_origin(kind) or kind)


def _row_to_json(row: Measurement) -> dict[str, Any]:
    """The fields, and derived figures for readers without this package."""
    fields = {name: value for name, value in fields_of(row).items() if name != "run"}
    for name in _SAMPLES:
        fields[f"{name}_ns"] = [_shifted(seconds, 9) for seconds in fields.pop(f"{name}_s")]
    # JSON has no infinity, so null replaces it. Only these two fields can be infinite.
    error = fields_of(row.error)
    for name, value in error.items():
        if isinstance(value, float) and not math.isfinite(value):
            error[name] = None
    derived = ("median_s", "iqr_s", "gflops", "vs_cublas", "share_of_peak", "call_median_s")
    figures = {name: _short(getattr(row, name)) for name in derived}
    return {**fields, "error": error | {"right": row.error.right}, **figures}


def _shifted(value: float, places: int) -> float:
    """A number times a power of ten, exact as a decimal."""
    decimal = Decimal(repr(float(value))).scaleb(places)
    whole = decimal.to_integral_value()
    return int(whole) if whole == decimal else float(decimal)


def _short(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.7g}")


def _row_from_json(run: Run, values: Mapping[str, Any]) -> Measurement:
    error = dict(values["error"])
    for name in ("relative", "worst_share"):
        error[name] = math.inf if error[name] is None else error[name]
    if error.get("vector_share") is None and not error["right"] and error["worst_share"] <= 1:
        error["vector_share"] = math.inf
    lists = {"unmet": tuple(values.get("unmet", ()))}
    for name in _SAMPLES:  # in seconds up to schema 3
        in_ns = (float(_shifted(ns, -9)) for ns in values.get(f"{name}_ns", ()))
        lists[f"{name}_s"] = tuple(values.get(f"{name}_s", in_ns))
    times = lists["samples_s"] + lists["call_samples_s"]
    if not all(0 < seconds < math.inf for seconds in times):
        raise ValueError("a sample is not a positive finite time")
    row: Measurement = _pick(
        Measurement, {**values, **lists, "run": run, "error": _pick(Accuracy, error)}
    )
    as_shape(row.shape)
    if row.layout not in LAYOUTS or not isinstance(row.variant, str):
        raise ValueError(f"a row has variant {row.variant!r} and layout {row.layout!r}")
    return row


def _readings_from_json(document: Mapping[str, Any]) -> tuple[Readings, ...]:
    """Up to schema 2, each row of a shape repeats its readings."""
    if "readings" in document:
        return tuple(_pick(Readings, each) for each in document["readings"])
    names = ("clock_mhz", "power_w", "temperature_c")
    found: dict[Case, Readings] = {}
    for row in document["rows"]:
        figures = [row.get(name) for name in names]
        if figures != [None] * len(names):
            layout = row.get("layout", "NN")
            shape = row["M"], row["N"], row["K"]
            found.setdefault((shape, layout), Readings(*shape, layout, *figures))
    return tuple(found.values())


def document_of(
    run: Run, rows: Sequence[Measurement], interrupted: bool, readings: Sequence[Readings]
) -> dict[str, Any]:
    """The results of a run, ready for JSON."""
    return {
        "schema": SCHEMA,
        "run": dataclasses.asdict(run),
        "interrupted": interrupted,
        "readings": [dataclasses.asdict(each) for each in readings],
        "rows": [_row_to_json(row) for row in rows],
    }


def read_document(
    path: str | Path,
) -> tuple[Run, tuple[Measurement, ...], bool, tuple[Readings, ...], int]:
    """Reads results of any known schema: run, rows, whether interrupted, readings, schema.

    Raises ValueError for a file without results, or with a newer schema.
    """
    try:
        document = _loads(path)
        if not isinstance(document, dict):
            raise ValueError(f"it is a {type(document).__name__}, not an object")
        schema = document["schema"]
        if schema not in range(1, SCHEMA + 1):
            raise ValueError(f"its schema is {schema!r}, but this version reads 1 to {SCHEMA}")
        facts = dict(document["run"])
        facts["protocol"] = _pick(Protocol, facts["protocol"])
        run: Run = _pick(Run, facts)
        if run.kind not in ("cpu", *LIBRARIES):
            raise ValueError(f"its kind of device is {run.kind!r}")
        rows = tuple(_row_from_json(run, row) for row in document["rows"])
        interrupted = document.get("interrupted", False)
        return run, rows, interrupted, _readings_from_json(document), schema
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        fault = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is not a file of results: {fault}") from None
