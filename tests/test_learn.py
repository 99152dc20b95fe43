"""The levels: right and wrong solutions, the commands, the folder of a learner, and grading."""

import contextlib
import io
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels.__main__ import main, make_parser
from sgemm_kernels._accuracy import expect
from sgemm_kernels.cli.plain_options import plain_keywords
from sgemm_kernels.cli.trial import TrialOptions
from sgemm_kernels.custom import nvrtc
from sgemm_kernels.custom.cases import Tile
from sgemm_kernels.custom.child_process import Child
from sgemm_kernels.custom.diagnosis import Finding
from sgemm_kernels.learning import drawing, grade, report
from sgemm_kernels.learning.counts import COUNTS
from sgemm_kernels.learning.expressions import value_of
from sgemm_kernels.learning.gain import gain_text
from sgemm_kernels.learning.judge import Verdict, draw_cases, judge, load
from sgemm_kernels.learning.level import Sizes, altered, level_of, levels, read_level
from sgemm_kernels.learning.places import by_place
from sgemm_kernels.learning.report import Judgement
from sgemm_kernels.learning.workspace import Progress, Workspace, course_around

pytestmark = [pytest.mark.packaging, pytest.mark.usefixtures("custom_cache")]

SOLUTIONS = Path(__file__).parent / "levels"
RIGHT, WRONG = (
    tomllib.loads((SOLUTIONS / name).read_text(encoding="utf-8"))
    for name in ("right.toml", "wrong.toml")
)


def each_of(table, quick):
    """Parameters for each entry. The first `quick` entries of each level are no thorough tests."""
    return [
        pytest.param(
            folder,
            entry,
            id=f"{folder}-{entry['name']}",
            marks=pytest.mark.thorough if number >= quick else (),
        )
        for folder, entries in table.items()
        for number, entry in enumerate(entries)
    ]


LEVELS = pytest.mark.parametrize("level", levels(), ids=lambda level: level.folder)


def text_of(level, entry):
    """The solution of an entry of right.toml or wrong.toml."""
    if "text" in entry:
        return entry["text"]
    base = level.start if entry.get("base") == "start" else level.solution
    return altered(base, entry["changes"])


@pytest.fixture(scope="module")
def child():
    """One process for all kernels."""
    child = Child("level")
    yield child
    child.end()


# ------------------------------------------------------------------ the judge


@LEVELS
def test_the_solution_passes(level, child):
    verdict = judge(level, level.solution, child=child)
    assert verdict.passed, Judgement(verdict, Progress())
    assert len(verdict.results) == len(level.limits)
    assert verdict.similar == ("naive" if level.name == "guards" else level.similar)
    assert re.search(r"H[12]00.*(times as fast|reaches).*TFLOP/s", gain_text(verdict))


@LEVELS
def test_the_start_does_not_pass(level, child):
    assert not judge(level, level.start, child=child).passed


def judged_in(level, text, child):
    """Whether a text passes a level. With fixed sizes, so that its products are the same ones."""
    return judge(level, text, child=child, seed=1).passed


@pytest.mark.parametrize("level", levels()[:-1], ids=lambda level: level.folder)
def test_a_solution_does_not_pass_the_next_level(level, child):
    """Each level needs its own idea. Nor does the next solution pass this level: a file cannot pass
    both."""
    following = levels()[level.number]
    assert not judged_in(following, level.solution, child)
    assert not judged_in(level, following.solution, child)


@pytest.mark.thorough
@LEVELS
def test_a_solution_passes_no_later_level(level, child):
    later = levels()[level.number :]
    assert [each.folder for each in later if judged_in(each, level.solution, child)] == []


@pytest.mark.parametrize(
    ("name", "similar"), [("index", "naive"), ("guards", "coalesced"), ("alpha_beta", "naive")]
)
def test_a_kernel_with_scattered_accesses_is_credited_as_such(name, similar, child):
    """The ladder's naive kernel has rows from threadIdx.x, its coalesced one columns."""
    level = level_of(name)
    swapped = re.sub(
        r"threadIdx\.([xy])",
        lambda found: "threadIdx." + ("y" if found[1] == "x" else "x"),
        level.solution,
    )
    verdict = judge(level, swapped, child=child)
    assert verdict.passed, Judgement(verdict, Progress())
    assert verdict.similar == similar
    assert f"most like yours is {similar}" in gain_text(verdict)


def test_the_last_level_credits_what_the_learner_wrote():
    """`auto` computes on tensor cores, and this kernel does not."""
    assert level_of(21).similar == "warptile"


@pytest.mark.parametrize(("folder", "entry"), each_of(RIGHT, quick=0))
def test_another_right_solution_passes(folder, entry, child):
    level = level_of(folder)
    text = text_of(level, entry)
    verdict = judge(level, text, child=child)
    assert verdict.passed, Judgement(verdict, Progress())
    assert not any(judged_in(each, text, child) for each in levels()[level.number :][:1])


@pytest.mark.parametrize(("folder", "entry"), each_of(WRONG, quick=1))
def test_a_wrong_solution_fails_and_the_report_names_the_mistake(folder, entry, child):
    level = level_of(folder)
    verdict = judge(level, text_of(level, entry), child=child)
    assert not verdict.passed
    said = "\n".join(map(str, verdict.findings))
    for words in entry["says"].split("; "):
        assert any(word in said for word in words.split("|")), said


@LEVELS
def test_a_level_is_complete(level):
    wrong = [text_of(level, entry) for entry in WRONG[level.folder]]
    assert len({*wrong, level.solution}) == len(wrong) + 1 > 5
    assert level.folder in RIGHT
    assert len(level.hints) == 4
    assert level.start != level.solution
    assert 5 <= len(level.text.splitlines()) <= 16
    assert all(limit.count in COUNTS for limit in level.limits)
    rungs = {variant.name for variant in sgemm_kernels.variants() if variant.file}
    assert {level.rung, level.similar, level.before or level.rung} <= rungs
    assert (Path(__file__).parent.parent / "docs" / level.docs).is_file()


@LEVELS
def test_a_text_has_no_measured_number(level):
    assert not re.search(r"TFLOP|times faster", level.text)


@LEVELS
def test_a_drawing_is_made_as_svg_and_as_text(level):
    ElementTree.fromstring(drawing.svg(level))
    lines = drawing.text(level).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 125


def test_sizes_are_new_each_time_and_cover_the_edges():
    sizes = Sizes(dict.fromkeys("MNK", (1, 50)), (1, 1, 1), True, False)
    drawn = [draw_cases(sizes, Tile(16, 16, 16), random.Random(seed)) for seed in range(2)]
    assert drawn[0] != drawn[1]
    for cases in drawn:
        for size in ("M", "N", "K"):
            rests = [getattr(case, size) % 16 for case in cases]
            assert 0 in rests
            assert any(rests)
        assert all(case.M != case.N for case in cases)
        assert any(case.M // 16 != case.N // 16 for case in cases)
        assert any(case.M % 2 and case.N % 16 == case.K % 16 == 0 for case in cases)
        assert any(case.alpha == 1 and case.beta == 0 for case in cases)
        assert any(case.alpha != 1 and case.beta not in (0, 1) for case in cases)


def test_sizes_are_multiples_where_the_level_says_so():
    sizes = Sizes(dict.fromkeys("MNK", (8, 64)), (16, 8, 1), False, False)
    cases = draw_cases(sizes, Tile(16, 8, 16), random.Random(1))
    assert all(case.M % 16 == 0 and case.N % 8 == 0 for case in cases)
    assert any(case.K % 16 for case in cases)
    assert all((case.alpha, case.beta) == (1, 0) for case in cases)


@pytest.mark.parametrize(
    ("expression", "value"),
    [(3, 3), ("K / 8 + 1", 9), ("t % 8 * 32 + t // 8", 130), ("0 ^ t", 4 + 16)],
)
def test_an_expression_of_a_goal(expression, value):
    assert value_of(expression, {"K": 64, "t": 20}) in (value, 20)


@pytest.mark.parametrize("expression", ["__import__('os')", "K ** K", "Q + 1", "'a' * 3"])
def test_another_expression_is_refused(expression):
    with pytest.raises(ValueError, match="is no expression"):
        value_of(expression, {"K": 64})


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("at_most", "at_mots", "unknown entry 'at_mots'"),
        ("[sizes]", "[size]", "unknown entry 'size'"),
        ("grid =", "gird =", "unknown entry 'gird'"),
        ("at_most = 1", "at_most = 1\nat_least = 1", "one of at_most and at_least"),
        ("[launch]", "start = [['no such text', '']]\n[launch]", "'no such text' occurs 0 times"),
    ],
)
def test_a_mistake_in_goal_toml_is_named(tmp_path, old, new, fact):
    source = Path(drawing.__file__).parent / "levels/05_shared_tile"
    folder = shutil.copytree(source, tmp_path / "05_shared_tile")
    goal = (folder / "goal.toml").read_text()
    assert old in goal
    (folder / "goal.toml").write_text(goal.replace(old, new))
    with pytest.raises(ValueError, match=fact):
        read_level(folder, 5)


def test_a_kernel_that_does_not_compile_is_reported_with_its_line(child):
    level = level_of("index")
    verdict = judge(level, level.solution.replace("float sum", "floot sum"), child=child)
    (finding,) = verdict.findings
    assert finding.kind == "does not compile"
    assert "floot" in verdict.line_of(finding)


@pytest.mark.parametrize("text", ["", "int main() {}\n", "__global__ void f(int q) {}\n"])
def test_a_file_without_the_kernel_is_no_crash(text, child):
    assert not judge(level_of(1), text, child=child).passed


# ------------------------------------------------------------------ level 20's own page


@pytest.fixture(scope="module")
def on_tensor_cores():
    """The model solution of level 20, as a custom kernel."""
    level = level_of("tensor_cores")
    return load(level, level.solution)


def scaled(exponent, seed=0):
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.uniform(-1, 1, (64, 64)), exponent).astype(np.float32)


@pytest.mark.parametrize("exponent", [15, 0, -2])
def test_moderate_values_are_within_the_bound(on_tensor_cores, exponent):
    A, B = scaled(exponent), scaled(exponent, 1)
    result = sgemm_kernels.run(on_tensor_cores, A, B, device="cpu")
    assert expect(A, B).worst_share(result) < 0.1


def test_small_values_lose_bits(on_tensor_cores):
    """A and B of 2^-14 are not better than fp16 alone, and of 2^-26 they are zero."""
    A, B = scaled(-14), scaled(-14, 1)
    result = sgemm_kernels.run(on_tensor_cores, A, B, device="cpu")
    assert expect(A, B).worst_share(result) > 10
    assert not sgemm_kernels.run(on_tensor_cores, scaled(-26), scaled(0), device="cpu").any()


def test_a_value_beyond_fp16_makes_its_row_nan(on_tensor_cores):
    A, B = scaled(0), scaled(0, 1)
    A[3, 5] = 65520
    result = sgemm_kernels.run(on_tensor_cores, A, B, device="cpu")
    assert np.isnan(result[3]).all()
    assert expect(A[:3], B).worst_share(result[:3]) < 0.1


@pytest.mark.thorough
def test_check_finds_only_the_special_values(on_tensor_cores):
    assert on_tensor_cores.variant.shared_bytes == (64 * 20 + 16 * 66) * 16
    (finding,) = on_tensor_cores.check(device="cpu").findings
    assert "only with special values" in finding.text


@pytest.mark.nvcc
@pytest.mark.skipif(not nvrtc.find_nvcc(), reason="needs nvcc")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "name",
    [
        "coalescing",
        "tail_of_k",
        "column",
        "rectangle",
        "wide_loads",
        "double_buffer",
        "tensor_cores",
    ],
)
def test_nvcc_compiles_it_alone_and_without_spills(tmp_path, name, architecture):
    (tmp_path / "mine.cu").write_text(level_of(name).solution)
    options = ["-cubin", f"-arch={architecture}", "-Xptxas", "-v", "-Werror", "all-warnings"]
    said = subprocess.run(
        [nvrtc.find_nvcc(), *options, "mine.cu"], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said.stderr


# ------------------------------------------------------------------ the commands


def run(*arguments):
    """The exit status and the output of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main([str(argument) for argument in arguments])
    return status, output.getvalue()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "mine"


def test_learn_makes_a_folder_and_introduces_the_first_level(folder):
    status, said = run("learn", "--folder", folder)
    assert status == 1
    first = levels()[0]
    assert f"Made {len(levels())} levels" in said
    assert f"Level 1 of {len(levels())}: {first.title}" in said
    assert str(folder / first.folder / first.file) in said
    assert "race: thread (1, 0) writes C[0, 0], which thread (0, 0) writes too" in said
    for level in levels():
        made = folder / level.folder
        assert {path.name for path in made.iterdir()} == {"README.md", "drawing.svg", level.file}


def test_an_unchanged_file_is_judged(folder):
    status, said = run("learn", "--level", 6, "--folder", folder)
    assert status == 1
    assert "Level 6 of" in said
    assert re.search(r"race: thread \(\d+, \d+\) writes As", said)
    assert "PASSED" not in said


def test_a_report_names_threads_by_their_place():
    text = "thread 48 reads A[19, 0]; threads 0, 17 and 255 wait for 2 threads"
    named = by_place(Finding("race", text), "(16, 16)").text
    assert named == (
        "thread (0, 3) reads A[19, 0]; threads (0, 0), (1, 1) and (15, 15) wait for 2 threads"
    )
    for block in ("(256)", "(THREADS)"):
        assert by_place(Finding("race", text), block).text == text


@pytest.mark.parametrize("inside", ["", "05_shared_tile"])
def test_learn_inside_the_folder_finds_its_course(folder, inside, monkeypatch):
    run("learn", "status", "--folder", folder)
    monkeypatch.chdir(folder / inside)
    before = sorted(folder.rglob("*"))
    for arguments in ([], ["--folder", "."], ["--folder", "new"]):
        said = run("learn", "hint", *arguments)[1]
        assert "Level 1, hint" in said
    assert "(3 hints)" in run("learn", "status")[1]
    assert sgemm_kernels.learn().progress.hints == {"index": 3}
    assert sorted(folder.rglob("*")) == before
    first = level_of(1)
    (folder / first.folder / first.file).write_text("")
    said = run("learn")[1]
    assert "--folder" not in said
    (path,) = re.findall(r"^Edit (\S+)\. For help", said, re.MULTILINE)
    assert Path(path).resolve() == folder / first.folder / first.file


def test_the_outer_course_is_found(folder, monkeypatch):
    run("learn", "status", "--folder", folder)
    nested = folder / "05_shared_tile/sgemm-levels"
    Workspace(nested).open_all()
    monkeypatch.chdir(nested)
    assert course_around(Path("sgemm-levels")).resolve() == folder


def test_without_the_documentation_no_link_leads_to_it(monkeypatch, tmp_path):
    """As in a wheel, which has the ladder's sources and no docs/."""
    level = level_of(1)
    verdict = Verdict(level, 1, (), (), level.rung, level.solution, level.file)
    assert "Read more: " in repr(Judgement(verdict, Progress()))
    monkeypatch.setattr(report, "__file__", str(tmp_path / "sgemm_kernels/learning/report.py"))
    said = repr(Judgement(verdict, Progress()))
    assert "docs" not in said
    (source,) = re.findall(r"^The source of coalesced: (.*)$", said, re.MULTILINE)
    assert Path(source).is_file()


def test_a_passed_level_leads_to_the_next(folder):
    run("learn", "--folder", folder)
    first, second = levels()[:2]
    (folder / first.folder / first.file).write_text(first.solution)
    status, said = run("learn", "--folder", folder)
    assert status == 0
    assert "PASSED. Level 1" in said
    assert "TFLOP/s" in said
    links = re.findall(r"^(?:The source of \w+|Read more): (.*)$", said, re.MULTILINE)
    assert [Path(link).suffix for link in links] == [".cu", ".md"]
    assert all(Path(link).is_file() for link in links)
    assert f"1 of {len(levels())}" in said
    assert f"Level 2 of {len(levels())}: {second.title}" in said
    _, said = run("learn", "status", "--folder", folder)
    assert f"[x]  1  {first.title}" in said
    assert f"[>]  2  {second.title}" in said


@pytest.mark.parametrize("number", [1, 21])
def test_with_a_gpu_a_passed_level_shows_how_to_time_it(folder, monkeypatch, number):
    """The command loads the learner's kernel with the level's launch."""
    level = level_of(number)
    Workspace(folder).open_all()
    path = folder / level.folder / level.file
    path.write_text(level.solution)
    monkeypatch.setattr(
        "sgemm_kernels.cli.learn.default_device", lambda: SimpleNamespace(kind="cuda")
    )
    said = run("learn", "--level", number, "--folder", folder)[1]
    (command,) = re.findall(r"^Its time on your GPU: (.*)$", said, re.MULTILINE)
    words = shlex.split(command)
    options = make_parser().parse_args(words[words.index("try") :])
    assert TrialOptions.parse(options).compared == (level.similar,)
    assert options.bench == [(4096, 4096, 4096)]
    own = sgemm_kernels.kernel(str(path), **plain_keywords(options))
    assert own.check(device="cpu") or number == 1  # which has neither alpha nor beta


def test_a_wrong_kernel_is_reported_with_a_line_and_the_way_to_a_hint(folder):
    run("learn", "--folder", folder)
    level = levels()[0]
    (folder / level.folder / level.file).write_text(level.solution.replace("k < K", "k <= K"))
    status, said = run("learn", "--folder", folder)
    assert status == 1
    assert "Not yet. Level 1" in said
    assert "out of bounds" in said
    assert re.search(r"\n +\d+ \| +sum \+= A\[", said)
    assert "learn hint" in said


def test_hints_rise_and_the_idea_comes_last(folder):
    level = level_of(5)
    for number in range(1, 6):
        _, said = run("learn", "hint", "--level", 5, "--folder", folder)
        shown = min(number, 4)
        assert ("hint" if shown < 4 else "the idea of the solution") in said
        first = re.split(r"[`\n]", level.hints[shown - 1])[0].split()[:4]
        assert " ".join(first) in said
    _, said = run("learn", "status", "--folder", folder)
    assert f"{level.title}  (4 hints)" in said


def test_reset_keeps_the_learners_file(folder):
    run("learn", "--folder", folder)
    level = levels()[0]
    path = folder / level.folder / level.file
    path.write_text("// mine\n")
    _, said = run("learn", "reset", "--folder", folder)
    assert path.read_text() == level.start
    assert "// mine" in (folder / level.folder / "index.old.cu").read_text()
    assert "index.old.cu" in said


def test_the_solution_is_shown(folder):
    assert run("learn", "solution", "--level", "shared_tile", "--folder", folder)[1].endswith(
        level_of(5).solution + "\n"
    )


def test_a_learners_file_is_never_changed(folder):
    run("learn", "--folder", folder)
    path = folder / "02_guards/guards.cu"
    path.write_text("// mine\n")
    run("learn", "status", "--folder", folder)
    assert path.read_text() == "// mine\n"


def test_a_folder_with_other_files_is_refused(folder, capsys):
    folder.mkdir()
    (folder / "other").write_text("")
    assert main(["learn", "--folder", str(folder)]) == 2
    assert "name an empty or new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["--level", "99"], "no level '99'"),
        (["hint", "--watch"], "--watch judges at each save"),
    ],
)
def test_a_mistake_in_the_command_is_named(folder, capsys, arguments, fact):
    assert main(["learn", *arguments, "--folder", str(folder)]) == 2
    assert fact in capsys.readouterr().err


def test_damaged_progress_is_named(folder, capsys):
    run("learn", "--folder", folder)
    (folder / "progress.json").write_text("{")
    assert main(["learn", "--folder", str(folder)]) == 2
    assert "progress.json is damaged" in capsys.readouterr().err


def test_watch_judges_at_each_save(folder, monkeypatch):
    level = levels()[0]
    Workspace(folder).open_all()
    path = folder / level.folder / level.file
    saves = SimpleNamespace(sleep=lambda _: path.write_text(level.solution))
    monkeypatch.setattr("sgemm_kernels.cli.learn.time", saves)
    status, said = run("learn", "--watch", "--level", 1, "--folder", folder)
    assert status == 0
    assert "Waiting for" in said
    assert "PASSED. Level 1" in said


def test_watch_that_is_stopped_has_not_passed(folder, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sgemm_kernels.cli.learn.time", SimpleNamespace(sleep=stop))
    assert run("learn", "--watch", "--level", 1, "--folder", folder)[0] == 1


# ------------------------------------------------------------------ grading


def test_grade_judges_each_file_and_marks_copies(tmp_path):
    level, long = level_of(1), level_of(5)
    renamed = long.solution.replace("sum", "s").replace("row", "r") + "// mine\n"
    files = {
        "anna/shared_tile.cu": long.solution,
        "bert/05_shared_tile/mine.cu": renamed,
        "carl/01_index.cu": level.solution.replace("k < K", "k <= K"),
        "dora/other.cu": level.solution,
        "emil/01_index.cu": level.solution.replace("float sum", "while (true) {}\nfloat sum"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    results = tmp_path / "grades.json"
    page = tmp_path / "grades.html"
    status, said = run("grade", tmp_path, "--json", results, "--html", page, "--seconds", 60)
    assert status == 0
    grades = {each["file"]: each for each in json.loads(results.read_text())}
    assert {name: each["passed"] for name, each in grades.items()} == {
        "anna/shared_tile.cu": True,
        "bert/05_shared_tile/mine.cu": True,
        "carl/01_index.cu": False,
        "dora/other.cu": False,
        "emil/01_index.cu": False,
    }
    assert grades["anna/shared_tile.cu"]["similar"] == ["bert/05_shared_tile/mine.cu"]
    assert not grades["carl/01_index.cu"]["similar"]  # so short a part is alike by necessity
    assert "out of bounds" in grades["carl/01_index.cu"]["verdict"]
    assert "no level has this name" in grades["dora/other.cu"]["verdict"]
    assert "endless" in grades["emil/01_index.cu"]["verdict"]
    assert "anna/shared_tile.cu" in said
    assert "<td>anna/shared_tile.cu</td>" in page.read_text()


def test_grade_limits_time_and_memory(tmp_path):
    level = level_of(1)
    (tmp_path / "index.cu").write_text(level.solution)
    (late,) = grade.grade(tmp_path, seconds=0.05)
    assert late.verdict == "not done after 0.05 s"
    (small,) = grade.grade(tmp_path, memory_bytes=1 << 20)
    assert not small.passed


def test_similarity_ignores_names_and_comments():
    one, other = (grade.tokens(level_of(n).solution) for n in (5, 9))
    assert grade.similarity(one, one) == 1
    assert grade.similarity(one, other) < grade.NEAR
    text = level_of(5).solution.replace("As", "tile_a").replace("{\n", "{ // here\n")
    assert grade.similarity(one, grade.tokens(text)) == 1


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert main(["grade", str(tmp_path)]) == 2
    assert "has no .cu files" in capsys.readouterr().err


# ------------------------------------------------------------------ in Python


def test_learn_shows_the_current_level(folder):
    course = sgemm_kernels.learn(folder=folder)
    assert "Level 1 of" in repr(course)
    shown = getattr(course, "_repr_html_")()  # noqa: B009  as a notebook calls it
    assert "<svg" in shown
    assert "%%sgemm level 1" in shown
    Workspace(folder).pass_level(levels()[0])
    assert "Level 2 of" in repr(course)
    assert course.progress.text == f"1 of {len(levels())}"
    assert "Level 5 of" in repr(sgemm_kernels.learn(5, folder=folder))


def test_after_the_last_level(folder):
    course = sgemm_kernels.learn(folder=folder)
    for level in levels():
        Workspace(folder).pass_level(level)
    assert "All" in repr(course)
    assert course.level is None
    assert run("learn", "--folder", folder)[0] == 0


def test_the_page_of_the_documentation_lists_the_levels():
    page = (Path(__file__).parent.parent / "docs/learn/levels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert rows == [(str(level.number), level.title) for level in levels()]
    names = page.partition("| count | meaning |")[2]
    assert all(name.partition(" by ")[0] in names for name in COUNTS)


def test_the_package_contains_the_levels():
    root = Path(__file__).parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert settings["setuptools"]["package-data"]["sgemm_kernels.learning"] == ["levels/*/*"]
    assert os.path.isdir(Path(drawing.__file__).parent / "levels")
