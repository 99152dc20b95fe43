"""The list of answers on the results page: a sentence for each question, from its file."""

import gzip
import json
import re
from pathlib import Path

import pytest

from sgemm_kernels.cli.answers import answers

RESULTS = Path(__file__).parent.parent / "benchmarks/results/h200"


def said(folder):
    """The answers by question."""
    return dict(re.findall(r"^- \*\*(.+?)\.\*\* (.+)$", answers(folder), re.MULTILINE))


def packed(path, document):
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


def test_every_question_has_an_answer_with_a_figure():
    found = said(RESULTS)
    assert len(found) == len(answers(RESULTS).splitlines())
    assert [question for question, answer in found.items() if not re.search(r"\d", answer)] == []


def test_a_folder_without_a_file_says_so(tmp_path):
    unknown = {question for question, answer in said(tmp_path).items()
               if answer == "Not measured yet."}  # fmt: skip
    assert unknown == set(said(tmp_path))


def test_a_loss_is_told(tmp_path):
    """The least and the largest ratio of `invariant`, and the slowest symmetric product."""
    packed(
        tmp_path / "same_bits.json.gz",
        {
            "rows": [
                {
                    "way": way,
                    "case": "2048 x 2048 NN",
                    "M": M,
                    "N": 2048,
                    "K": 2048,
                    "median_ns": ns,
                }
                for M in (1, 2048)
                for way, ns in (("torch.mm", 30 * M), ("auto", 10 * M), ("invariant", 40 * M))
            ]
        },
    )
    medians = {"4096 x 4096": (50, 100, 400), "8 x 64 x 64": (125, 100, 150)}
    packed(
        tmp_path / "symmetric.json.gz",
        {
            "rows": [
                {"way": way, "case": case, "median_ns": ns}
                for case, times in medians.items()
                for way, ns in zip(("auto", "auto, a copy", "torch.matmul"), times, strict=True)
            ]
        },
    )
    found = said(tmp_path)
    assert "0.25 to 0.25 times the speed of `auto`" in found["The same bits in every batch"]
    assert "0.75 to 0.75 times cuBLAS's" in found["The same bits in every batch"]
    symmetric = found["Symmetric products"]
    assert "2.00 times as fast as with a copy" in symmetric
    assert "8.00 times as fast as by cuBLAS" in symmetric
    assert "an A of 8 x 64 x 64, it has 0.80 times the speed" in symmetric


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ("0", "The results (1 file) are of 2026-01-02. Measured on older sources: all_gpus.json."),
        (None, "All were measured on the sources of this version."),
    ],
)
def test_the_age_names_files_of_older_sources(tmp_path, recorded, words):
    document = {"date": "2026-01-02T03:04:05", "experiment": "all_gpus", "rows": []}
    (tmp_path / "all_gpus.json").write_text(json.dumps(document | {"sources_hash": recorded}))
    (age,) = re.findall(
        r"^- \*\*The age of the figures\.\*\* (.+)$", answers(tmp_path), re.MULTILINE
    )
    assert age.endswith(words)
