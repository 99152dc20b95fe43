"""The results file: it is written as documented, and older files stay readable."""

import dataclasses
import gzip
import json
import math
from pathlib import Path

import pytest

from sgemm_kernels import Results, Tuning, measure
from sgemm_kernels.__main__ import main
from sgemm_kernels.measuring.measurement import Readings
from sgemm_kernels.measuring.results_file import SCHEMA, read_json

ROOT = Path(__file__).parent.parent
DOCUMENTED = json.loads((ROOT / "benchmarks" / "results.schema.json").read_text())
FILES = sorted((Path(__file__).parent / "data").glob("results_schema_*.json"))
MADE_UP = FILES[-1]

jsonschema = pytest.importorskip("jsonschema")  # from the extra 'test'
valid = jsonschema.Draft202012Validator(DOCUMENTED)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(DOCUMENTED)
    assert DOCUMENTED["properties"]["schema"]["enum"] == list(range(1, SCHEMA + 1))
    assert len(FILES) == SCHEMA


@pytest.fixture(scope="module")
def measured():
    return measure(["naive", "vec4"], [4, (3, 5, 7)], device="cpu", seconds=0.05)


def test_written_results_are_valid_and_read_back(measured, tmp_path):
    measured.to_json(tmp_path / "r.json")
    valid.validate(json.loads((tmp_path / "r.json").read_text()))
    assert Results.from_json(tmp_path / "r.json") == measured


def test_every_field_is_documented(measured, tmp_path):
    measured.to_json(tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    fields = DOCUMENTED["properties"]
    row = DOCUMENTED["$defs"]["row"]["properties"]
    assert set(document) == set(fields)
    assert set(document["run"]) == set(fields["run"]["properties"])
    assert set(document["run"]["protocol"]) == set(
        fields["run"]["properties"]["protocol"]["properties"]
    )
    assert set(document["rows"][0]) == set(row) - {"samples_s", "call_samples_s"}, "older names"
    readings = {field.name for field in dataclasses.fields(Readings)}
    assert readings == set(fields["readings"]["items"]["properties"])
    assert set(document["rows"][0]["error"]) == set(row["error"]["properties"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_of_older_runs_stay_readable(path, tmp_path):
    """These files are never rewritten; a new schema adds another."""
    valid.validate(json.loads(path.read_text()))
    results = Results.from_json(path)
    assert results.run.ffma_gflops == 60000
    (wrong,) = (row for row in results.rows if not row.error.right)
    assert wrong.error.worst_share == math.inf
    assert all(row.median_s for row in results.rows if row is not wrong)
    results.to_json(tmp_path / "again.json")
    assert Results.from_json(tmp_path / "again.json") == results


def test_readings_of_older_runs_belong_to_their_shapes():
    document = json.loads((ROOT / "benchmarks/results/h200/ladder.json").read_text())
    results = Results.from_json(ROOT / "benchmarks/results/h200/ladder.json")
    first = {(row["M"], row["N"], row["K"]): row for row in reversed(document["rows"])}
    if document["schema"] == 2:
        told = [row for row in first.values() if row["clock_mhz"] is not None]
        assert {r.power_w for r in results.readings} == {row["power_w"] for row in told}
    assert results.readings


def test_committed_results_are_valid():
    """Results of the ladder and of tuning; the other experiments have their own formats."""
    paths = list((ROOT / "benchmarks/results").glob("*/*.json*"))
    tunings = [path for path in paths if path.stem.startswith("tuning-")]
    documents = [read_json(path) for path in paths if path not in tunings]
    ladders = [document for document in documents if "experiment" not in document]
    assert ladders
    assert tunings
    for document in ladders:
        valid.validate(document)
    for path in tunings:
        assert Tuning.from_json(path).best is not None


def test_a_name_that_ends_in_gz_is_compressed(measured, tmp_path):
    for name in ("r.json", "r.json.gz", "again.json.gz"):
        measured.to_json(tmp_path / name)
        assert Results.from_json(tmp_path / name) == measured
    packed = (tmp_path / "r.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "r.json").read_bytes()
    assert packed == (tmp_path / "again.json.gz").read_bytes()
    for broken in (packed[:-9], packed[:40] + bytes(8) + packed[48:], b"{}"):
        (tmp_path / "broken.json.gz").write_bytes(broken)
        with pytest.raises(
            ValueError, match=r"broken\.json\.gz is not a file of results: it cannot be"
        ):
            Results.from_json(tmp_path / "broken.json.gz")


def changed(change):
    document = json.loads(MADE_UP.read_text())
    change(document)
    return document


def written(tmp_path, document):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


def test_optional_fields_may_be_missing_and_unknown_ones_present(tmp_path):
    def change(document):
        document["run"]["weather"] = "fair"
        document["rows"] = document["rows"][:1]
        row = document["rows"][0]
        kept = {name: row[name] for name in ("variant", "M", "N", "K", "error", "samples_ns")}
        document["rows"] = [{**kept, "mood": 3}]
        del document["run"]["ffma_gflops"], document["interrupted"]

    document = changed(change)
    valid.validate(document)
    results = Results.from_json(written(tmp_path, document))
    assert results.run.ffma_gflops is None
    assert results.rows[0].median_s > 0


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda d: d.update(schema=SCHEMA + 1), f"schema is {SCHEMA + 1}"),
        (lambda d: d.pop("schema"), "'schema'"),
        (lambda d: d["run"].pop("device"), "device"),
        (lambda d: d["rows"][0].pop("error"), "'error'"),
        (lambda d: d["rows"][0].pop("variant"), "variant"),
        (lambda d: d["rows"][0].update(samples_ns=[1e6, 0.0]), "not a positive finite time"),
        (lambda d: d["rows"][0].update(samples_ns=["1 ms"]), "'1 ms'"),
        (lambda d: d["run"].update(kind="metal"), "'metal'"),
        (lambda d: d["rows"][0].update(M="16"), "'16'"),
        (lambda d: d["rows"][0].update(N=0), "at least 1"),
        (lambda d: d["rows"][0].update(layout="NX"), "'NX'"),
        (lambda d: d["run"].update(device=[]), r"device is \[\]"),
        (lambda d: d["run"].update(ffma_gflops="1"), "ffma_gflops is '1'"),
        (lambda d: d["rows"][0]["error"].update(relative="small"), "relative is 'small'"),
        (lambda d: d["rows"][0].update(variant=4), "variant is 4"),
    ],
    ids=[
        *("newer", "no schema", "no device", "no error", "no variant", "no time"),
        *("a time in words", "no kind"),
        *(
            "a size in words",
            "no size",
            "no layout",
            "no device name",
            "no figure",
            "no error figure",
            "no name",
        ),
    ],
)
def test_unreadable_results_are_refused(tmp_path, change, fact):
    document = changed(change)
    path = written(tmp_path, document)
    with pytest.raises(ValueError, match=rf"changed\.json is not a file of results.*{fact}"):
        Results.from_json(path)
    with pytest.raises(jsonschema.ValidationError):
        valid.validate(document)


NUMBERS = ("1" + 400 * "0", "-1" + 400 * "0", "1" + 5000 * "0", "1e400", "NaN", "-Infinity")
PLACES = (
    *(("run", "ffma_gflops"), ("rows", 0, "M"), ("rows", 0, "samples_ns", 0), ("schema",)),
    *(("rows", 0, "error", "relative"), ("rows", 0, "weather")),
)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:3] + str(len(text)))
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_impossible_number_is_refused(tmp_path, number, place):
    def change(document):
        *path, last = place
        for step in path:
            document = document[step]
        document[last] = "NUMBER"

    path = written(tmp_path, changed(change))
    path.write_text(path.read_text().replace('"NUMBER"', number))
    with pytest.raises(
        ValueError, match=r"is not a file of results: .*(digits|not a finite number)"
    ):
        Results.from_json(path)
    assert main(["judge", str(path), str(MADE_UP)]) == 2
    assert main(["plot", str(path), "-o", str(tmp_path / "p.svg")]) == 2
    with pytest.raises(ValueError, match=r"is not JSON: .*(digits|not a finite number)"):
        read_json(path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{", "[" * 10**5, '{"schema": 1, "run": 7, "rows": []}'],
    ids=["nothing", "a list", "a number", "half", "deep", "no run"],
)
def test_other_json_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ValueError, match="is not a file of results"):
        Results.from_json(tmp_path / "r.json")


def test_a_wrong_result_with_a_time_is_invalid():
    def change(document):
        document["rows"][0]["error"]["right"] = False

    with pytest.raises(jsonschema.ValidationError):
        valid.validate(changed(change))
