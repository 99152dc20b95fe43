"""The ablations (what did not help): their questions, their kernels, and results from made-up
times."""

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sgemm_kernels.cli.experiment_tables import ablation, setting_cells, setting_columns
from sgemm_kernels.measuring.probe import find_nvcc
from sgemm_kernels.measuring.sources import patterns_of

ROOT = Path(__file__).parent.parent

REPORT = {"registers": 128, "spill_store_bytes": 8, "spill_load_bytes": 4, "stack_bytes": 0,
          "shared_bytes": 0}  # fmt: skip


@pytest.fixture
def ablations(experiment):
    return experiment("ablations")


@pytest.fixture
def sass(experiment):
    return experiment("_sass")


@pytest.fixture
def fp16_pairs(experiment):
    return experiment("ablations_fp16_pairs")


@pytest.fixture
def settings(ablations):
    return settings_of(ablations.QUESTIONS)


def settings_of(questions):
    return [(question, one) for question in questions for one in question.settings]


@pytest.fixture(params=["ablations", "ablations_fp16_pairs"])
def either(request, experiment):
    """Products in float32, then split-fp16 products."""
    return experiment(request.param)


PAGES = {"ablations": "README.md", "ablations_fp16_pairs": "fp16_pairs.md"}


class TestQuestions:
    def test_questions_of_every_ladder_are_present(self, ablations):
        assert [question.idea for question in ablations.QUESTIONS] == [
            "Double buffering alone",
            "Padding against swizzle",
            "Z-order lane maps",
            "Half of the block loads A, the other half B",
            "TM x TN: other shapes of a thread's results",
            "Stores between the multiply-adds",
            "8 x 8 against 16 x 8",
            "Register reuse order",
            "Blocks in groups of rows, for the L2 cache",
            "Larger BK",
        ]
        assert len({question.key for question in ablations.QUESTIONS}) == 10

    def test_split_fp16_questions_are_present(self, fp16_pairs):
        assert [question.idea for question in fp16_pairs.QUESTIONS] == [
            "Larger tiles",
            "Three warpgroups that multiply",
            "A in registers",
            "A cluster of two blocks that share a tile",
            "Persistent blocks",
            "Lower and higher bands of tiles",
            "Small products by stage",
        ]
        assert len({question.key for question in fp16_pairs.QUESTIONS}) == 7

    def test_each_has_a_baseline_and_is_complete(self, either):
        for question in either.QUESTIONS:
            names = [setting.name for setting in question.settings]
            kernels = [question.kernel(setting) for setting in question.settings]
            assert len(set(names)) == len(names) > 1, question.key
            assert all(a != b for a, b in itertools.combinations(kernels, 2)), question.key

    def test_the_page_has_a_prediction_and_a_cause_for_each(self, either):
        text = (ROOT / "benchmarks/ablations" / PAGES[either.__name__]).read_text(encoding="utf-8")
        sections = dict(part.split("\n", 1) for part in re.split(r"^## ", text, flags=re.M)[1:])
        ideas = [question.idea for question in either.QUESTIONS]
        assert [title for title in sections if title in ideas] == ideas
        for question in either.QUESTIONS:
            section = sections[question.idea]
            file = f"{either.__name__}.json#{question.key}"
            assert re.search(rf"<!-- results: ablation \S+/{file} -->", section)
            prediction, cause = re.findall(r"^\*\*(?:Predicted|Why)\.\*\* (.+?\.)$(?=\n\n|\n?\Z)",
                                           section, re.M | re.S)  # fmt: skip
            assert re.search(r"\d", prediction), "a prediction is a number"
            assert cause

    def test_each_size_is_a_multiple_of_the_tile(self, ablations, settings):
        for question, setting in settings:
            given = question.kernel(setting).constants
            tile = given["RASTER"] * given["BM"], given["BN"]
            for n in question.sizes:
                assert n % tile[0] == n % tile[1] == 0, (question.key, setting.name)

    def test_all_constants_are_documented_and_no_others(self, experiment, ablations, fp16_pairs):
        documented = {}
        told = experiment("_questions").__doc__ + experiment("_questions_fp16_pairs").__doc__
        for part in re.split(r"(?=``\w+\.cu``)", told)[1:]:
            cells = re.findall(r"^\| ([A-Z][A-Z_, ]+) \|", part, re.MULTILINE)
            source = part.split("``")[1]
            documented[source] = {name for names in cells for name in names.split(", ")}
            used = re.findall(r"\b[A-Z][A-Z_]+\b", (ablations.FOLDER / source).read_text())
            assert documented[source] <= set(used)
        for question, setting in settings_of((*ablations.QUESTIONS, *fp16_pairs.QUESTIONS)):
            kernel = question.kernel(setting)
            assert set(kernel.constants) == documented[kernel.source], (question.key, setting.name)

    @pytest.mark.parametrize("name", ["ablations", "ablations_fp16_pairs"])
    def test_the_hash_is_of_all_kernels(self, ablations, experiment, name):
        kernels = ablations.kernels(experiment(name).QUESTIONS).values()
        hashed = {ROOT / pattern for pattern in patterns_of(name)}
        assert hashed >= {(ablations.FOLDER / each.source).resolve() for each in kernels}


@pytest.mark.packaging
@pytest.mark.nvcc
class TestCompiled:
    @pytest.fixture(autouse=True)
    def nvcc(self):
        try:
            find_nvcc()
        except FileNotFoundError:
            pytest.skip("nvcc compiles the kernels")

    def test_every_kernel_compiles_and_spills_only_where_its_row_says_so(
        self, ablations, either, tmp_path
    ):
        named = ablations.kernels(either.QUESTIONS)

        def spilled(name):
            output = tmp_path / f"{name}.cubin"
            source, constants = named[name].source, {"NAME": name} | named[name].constants
            architecture = ablations.ARCHITECTURES.get(source, "sm_90")
            text = ablations.compile_source(
                ablations.FOLDER / source, constants, output, "-cubin", architecture=architecture
            )
            assert "warning" not in text
            report = ablations.parse_report(text, name)
            return report["spill_store_bytes"] + report["spill_load_bytes"]

        with ThreadPoolExecutor(2) as compilers:
            spills = dict(zip(named, compilers.map(spilled, named), strict=True))
        for question, setting in settings_of(either.QUESTIONS):
            name = next(n for n in named if named[n] == question.kernel(setting))
            assert setting.spills or not spills[name], (question.key, setting.name)

    def test_the_program_links(self, ablations, tmp_path):
        one_of_each = {kernel.source: name for name, kernel in ablations.kernels().items()}
        objects = [tmp_path / f"{name}.o" for name in one_of_each.values()]
        for name, output in zip(one_of_each.values(), objects, strict=True):
            kernel = ablations.kernels()[name]
            found = ablations.compile_kernel(name, kernel, output, "sm_90")
            assert found["registers"] > 64
            assert found["loop_instructions"] is None or found["ffma_share"] > 0.8
        ablations.compile_source(
            ablations.FOLDER / "alternate.cu",
            {},
            tmp_path / "alternate",
            *objects,
            architecture="sm_90",
        )
        assert (tmp_path / "alternate").exists()

    def test_the_split_fp16_program_links(self, ablations, fp16_pairs, tmp_path):
        name, kernel = next(iter(ablations.kernels(fp16_pairs.QUESTIONS).items()))
        output, program = tmp_path / "kernel.o", tmp_path / "alternate"
        found = ablations.compile_kernel(name, kernel, output, "sm_90a")
        assert found["registers"] == 168, "an equal share, until some warpgroups take over others'"
        assert found["ffma_share"] is None, "tensor cores multiply"
        source = ablations.FOLDER / "alternate.cu"
        ablations.compile_source(source, {}, program, output, architecture="sm_90")
        assert program.exists()


class TestCode:
    """Code with a loop of three FFMAs at 0020 to 0080, and other instructions around it."""

    TEXT = """
        /*0000*/                   LDG.E.128 R4, desc[UR6][R2.64] ;   /* 0x00 */
        /*0010*/                   STS [R9], R4 ;                     /* 0x00 */
        /*0020*/                   LDG.E.128 R4, desc[UR6][R2.64] ;   /* 0x00 */
        /*0030*/                   LDGSTS.E.BYPASS.128 [R7], desc[UR6][R2.64] ; /* 0x00 */
        /*0040*/                   FFMA R1, R20.reuse, R30, R40 ;     /* 0x00 */
        /*0050*/                   FFMA R1, R20, R32, R42 ;           /* 0x00 */
        /*0060*/                   FFMA R1, R21, R33, R42 ;           /* 0x00 */
        /*0070*/                   STS [R9], R4 ;                     /* 0x00 */
        /*0080*/               @P0 BRA 0x20 ;                         /* 0x00 */
        /*0090*/                   FFMA R1, R2, R4, R6 ;              /* 0x00 */
        /*00a0*/                   BRA 0xa0;                          /* 0x00 */
    """

    def test_the_loop_is_the_one_that_multiplies(self, sass):
        loop = sass.main_loop_of(self.TEXT)
        assert len(loop) == 7
        assert loop[0].startswith("LDG.E")
        assert loop[-1].startswith("@P0 BRA")

    def test_a_loop_within_a_loop_does_the_work(self, sass):
        text = f"{self.TEXT} /*00b0*/ FFMA R1, R2, R4, R6 ; /*00c0*/ @P1 BRA 0x0 ;"
        assert sass.main_loop_of(text) == sass.main_loop_of(self.TEXT)

    def test_figures(self, sass):
        assert sass.figures(sass.main_loop_of(self.TEXT)) == {
            "loop_instructions": 7,
            "ffma_share": 3 / 7,
            "reuse_share": 1 / 3,
            "conflict_share": 1 / 3,  # the first FFMA; the second finds R20 in the reuse cache
            "load_distance": 5,  # a copy that bypasses registers does not count as a store
        }

    def test_code_without_a_loop_has_no_figures(self, sass):
        assert set(sass.figures(sass.main_loop_of("cuobjdump fatal: no code")).values()) == {None}

    def test_a_loop_that_does_not_multiply_is_not_the_main_one(self, sass):
        assert sass.main_loop_of("/*0000*/ FADD R1, R2, R3 ; /*0010*/ @P0 BRA 0x0 ;") == []

    def test_a_tile_that_is_not_loaded_into_registers_has_no_distance(self, sass):
        assert sass.figures(["FFMA R1, R2, R3, R4", "STS [R9], R4"])["load_distance"] is None


def test_a_ratio_is_of_medians_and_its_quartiles_are_of_rounds(experiment, ablations):
    summary = experiment("_results").summary
    found = ablations.compared(summary([2.0, 4.0, 6.0]), summary([1.0, 4.0, 2.0]))
    assert found["ratio"] == 2.0
    assert found["ratio_quartiles"] == [1.5, 2.5]
    assert ablations.compared({}, summary([1.0, 1.0])) == {}, "a wrong result has no ratio"


def run_with(ablations, monkeypatch, compile_kernel, measure, *asked):
    """The result file of a run that compiles and measures with these two functions."""
    monkeypatch.setattr(ablations, "compile_kernel", compile_kernel)
    monkeypatch.setattr(ablations, "compile_source", lambda *_: "")
    monkeypatch.setattr(ablations, "measure", measure)
    monkeypatch.setattr("_sweep.toolkit", lambda: "13.0.0")
    head, rows = ablations.run(*asked)
    return head | {"date": "2026-01-02T03:04:05+00:00", "rows": rows}


@pytest.fixture
def found(experiment, ablations, sass, monkeypatch):
    """Results of a run: the second setting of each question takes half the time."""
    summary = experiment("_results").summary

    def compile_kernel(name, kernel, output, architecture):
        return REPORT | sass.figures(sass.main_loop_of(TestCode.TEXT))

    def measure(program, n, *names):
        rows = []
        for turn, name in enumerate(names):
            row = {"device": "A Made-Up GPU", "driver": "13.0", "n": n, "resident_blocks": 2}
            if (turn, len(names)) != (2, 5):  # the third setting of the question with five is wrong
                row |= summary([seconds / (1 + (turn == 1)) for seconds in (1.0, 1.1, 1.2, 1.3)])
            rows.append(row | {"kernel": name})
        return rows

    return run_with(ablations, monkeypatch, compile_kernel, measure)


class TestFailures:
    """A setting that fails to compile or run does not affect the results of the others."""

    def run(self, experiment, ablations, monkeypatch, uncompiled, fatal):
        def compile_kernel(name, kernel, output, architecture):
            if name in uncompiled:
                raise SystemExit("ptxas error: too much shared data")
            return REPORT

        def measure(program, n, *names):
            if fatal & set(names):
                raise SystemExit("the launch: out of resources")
            row = {"device": "A Made-Up GPU", "driver": "13.0", "n": n, "resident_blocks": 2}
            times = experiment("_results").summary([1.0, 1.0])
            return [row | times | {"together": len(names)} for _ in names]

        return run_with(ablations, monkeypatch, compile_kernel, measure)

    def test_of_two_settings(self, experiment, ablations, monkeypatch, tmp_path):
        found = self.run(experiment, ablations, monkeypatch, {"kernel_1"}, {"kernel_2"})
        rows = found["rows"][: len(ablations.QUESTIONS[0].settings)]
        problems = [row.get("problem", "") for row in rows]
        assert problems == [
            "",
            "ptxas error: too much shared data",
            "the launch: out of resources",
            "",
        ]
        assert [row.get("together") for row in rows] == [2, None, None, 2], "the others alternate"
        assert [row.get("ratio") for row in rows] == [1, None, None, 1]
        assert sum("problem" in row for row in found["rows"]) == 2
        assert ablations.lines(found["rows"]).count("failed") == 2
        assert reported(found, tmp_path, ablations.QUESTIONS[0]).count(" failed |") == 2
        assert ablations.picture(found, found["rows"]).axes

    def test_of_a_baseline(self, experiment, ablations, monkeypatch, tmp_path):
        found = self.run(experiment, ablations, monkeypatch, {"kernel_0"}, set())
        text = reported(found, tmp_path, ablations.QUESTIONS[0])
        assert text.count("| 1000.000 | - | - |") == 3, "a time, and no ratio"

    def test_of_all(self, experiment, ablations, monkeypatch):
        with pytest.raises(SystemExit, match="out of resources"):
            self.run(experiment, ablations, monkeypatch, set(), set(ablations.kernels()))


class TestResults:
    def test_a_row_for_each_setting_and_size_with_its_own_kernel(self, ablations, found):
        rows = found["rows"]
        wanted = [
            (question.key, n, setting.name, question.kernel(setting))
            for question in ablations.QUESTIONS
            for n in question.sizes
            for setting in question.settings
        ]
        named = ablations.kernels()
        for row, (key, n, name, kernel) in zip(rows, wanted, strict=True):
            assert (row["question"], row["n"], row["setting"]) == (key, n, name)
            assert row["source"] == kernel.source
            assert {each: row[each.lower()] for each in kernel.constants} == kernel.constants
            assert named[row["kernel"]] == kernel
        assert found["device"] == "A Made-Up GPU"
        assert "alternate" in found["protocol"]

    def test_ratios_are_to_the_first_setting(self, ablations, found):
        for question in ablations.QUESTIONS:
            for n in question.sizes:
                of = [row for row in ablations.of(question, found["rows"]) if row["n"] == n]
                assert of[0]["ratio"] == 1
                assert of[1]["ratio"] == pytest.approx(2)

    def test_the_table(self, ablations, settings, found):
        text = ablations.lines(found["rows"])
        for question, setting in settings:
            assert question.idea in text
            assert f"  {setting.name}" in text
        halved = sum(len(question.sizes) for question in ablations.QUESTIONS)
        assert text.count("2.000 to 2.000") == halved
        assert text.count("wrong") == 1
        assert text.count("42.9%") == len(found["rows"])

    def test_without_a_disassembler_the_code_is_unknown(self, ablations, sass, found):
        row = found["rows"][0] | dict.fromkeys(sass.figures([]))
        assert setting_cells(row, setting_columns([row]))[5:10] == ["-"] * 5

    def test_the_picture_has_a_point_for_each_altered_setting(self, ablations, found):
        figure = ablations.picture(found, found["rows"])
        (axes,) = figure.axes
        points = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
        baselines = {question.settings[0].name for question in ablations.QUESTIONS}
        timed = [row for row in found["rows"] if "ratio" in row]
        assert points == [row["ratio"] for row in timed if row["setting"] not in baselines]
        assert "A Made-Up GPU" in figure.get_supxlabel()
        texts = [text.get_text() for text in axes.texts]
        assert all(question.idea in texts for question in ablations.QUESTIONS)

    @pytest.mark.packaging
    def test_the_block_of_a_question(self, ablations, found, tmp_path):
        for question in ablations.QUESTIONS:
            text = reported(found, tmp_path, question)
            rows = len(question.settings) * len(question.sizes)
            assert text.count("\n") == 1 + rows + 2, "header, rule, settings, and where it was"
            assert all(f"| {setting.name} |" in text for setting in question.settings)
            assert text.count("2.000 to 2.000") == len(question.sizes)
            assert text.count(" wrong |") == (question.key == "size")
            assert text.endswith(
                "A Made-Up GPU, CUDA 13.0.0, sources 0, 2026-01-02, measured on older sources."
            )

    def test_before_it_was_measured_the_block_says_so(self, ablations, found, tmp_path):
        unmeasured = {**found, "rows": []}
        assert reported(unmeasured, tmp_path, ablations.QUESTIONS[0]) == "Not measured yet."


class TestSplitFp16Results:
    @pytest.fixture
    def found(self, experiment, ablations, fp16_pairs, monkeypatch):
        """Results of a run: the second setting of each question takes half the time."""
        summary = experiment("_results").summary
        self.compiled_for = set()

        def compile_kernel(name, kernel, output, architecture):
            self.compiled_for.add(architecture)
            return REPORT

        def measure(program, n, *names):
            row = {"device": "A Made-Up GPU", "driver": "13.0", "n": n, "relative_error": 2.5e-7}
            times = [summary([1.0 / (1 + (turn == 1))] * 2) for turn in range(len(names))]
            return [row | each | {"gflops": 123456.0} for each in times]

        return run_with(ablations, monkeypatch, compile_kernel, measure, fp16_pairs.QUESTIONS)

    def test_they_are_compiled_only_for_sm_90a(self, found):
        assert found["rows"]
        assert self.compiled_for == {"sm_90a"}

    def test_the_tables_have_the_error_and_no_ffmas(self, ablations, fp16_pairs, found, tmp_path):
        terminal = ablations.lines(found["rows"], fp16_pairs.QUESTIONS)
        for question in fp16_pairs.QUESTIONS:
            assert question.idea in terminal
            text = reported(found, tmp_path, question)
            assert "FFMA" not in text
            assert text.count("| 2.5e-07 |") == len(question.settings) * len(question.sizes)
            assert text.count("| 123.5 | 2.000 | 2.000 to 2.000 |") == len(question.sizes)
        assert "FFMA" not in terminal
        assert terminal.count("2.5e-07") == len(found["rows"])

    def test_without_results_the_block_says_so(self, tmp_path):
        assert ablation(tmp_path / "none.json#tiles") == "Not measured yet."


def reported(found, folder, question):
    """The block of a question's results in a document."""
    (folder / "r.json").write_text(json.dumps({**found, "sources_hash": "0"}))
    return ablation(folder / f"r.json#{question.key}")
