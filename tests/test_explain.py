"""Pages that explain kernels: their figures, checked by arithmetic, and the pages in a real
browser."""

import dataclasses
import html
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgemm_kernels
from sgemm_kernels import UnsupportedVariantError, explain, variants
from sgemm_kernels.__main__ import main
from sgemm_kernels._gpus import Gpu
from sgemm_kernels.explaining import pages
from sgemm_kernels.explaining.gain import gain
from sgemm_kernels.explaining.limits import Limits
from sgemm_kernels.explaining.occupancy import occupancy
from sgemm_kernels.explaining.pages import save_ladder
from sgemm_kernels.explaining.source_diff import difference
from sgemm_kernels.measuring import recorded
from sgemm_kernels.measuring.recorded import SIZE, records
from sgemm_kernels.measuring.sources import OLDER, is_older

from . import browser
from .support import SPLIT_FP16

pytestmark = pytest.mark.packaging

RUNGS = [variant for variant in variants() if variant.file is not None and "cpu" in variant.devices]
NAMES = [rung.name for rung in RUNGS]
BY_NAME = pytest.mark.parametrize("name", NAMES)
IN_BROWSER = pytest.mark.skipif(browser.find() is None, reason="there is no Chromium to open pages")


@pytest.fixture(scope="module")
def explained():
    found = {}

    def one(name):
        if name not in found:
            (found[name],) = explain(name).kernels
        return found[name]

    return one


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The ladder's pages, and one page of two kernels."""
    folder = tmp_path_factory.mktemp("site")
    save_ladder(folder / "ladder")
    explain("tile2d", "vec4").save(folder / "two.html")
    return folder


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


# ------------------------------------------------------------------------------ figures


def unit(kernel, name):
    (found,) = [limit for limit in kernel.limits.units if limit.unit == name]
    return found


def test_limits_are_the_arithmetic_of_the_ladder(explained):
    products = SIZE**3
    naive, coalesced, vec4 = map(explained, ("naive", "coalesced", "vec4"))
    name = "L1 and shared memory"
    # A load of A touches one line per thread, a load of B a single line.
    stored = SIZE * SIZE
    assert unit(naive, name).asked == 33 * products / 32 + stored
    assert unit(coalesced, name).asked == 2 * products / 32 + stored / 32
    assert naive.limits.limiting.unit == coalesced.limits.limiting.unit == name
    assert coalesced.gain.predicted == pytest.approx(33 / 2, rel=1e-3)
    for kernel in (naive, coalesced, vec4):
        assert unit(kernel, "FMA pipe").asked == products
        assert unit(kernel, "device memory").asked == 4 * 3 * SIZE**2
    # Each multiply-add of a warp and its two loads, and a store for each result.
    assert unit(naive, "issue slots").asked == 3 * products / 32 + stored / 32
    # A block of vec4 reads its 128 rows and columns once, in whole sectors.
    assert unit(vec4, "L2 cache").asked == 8 / 128 * products + 4 * stored


def test_an_asynchronous_copy_counts_once(explained):
    """For each K chunk (64) of a 128 x 128 tile, wgmma loads the fp16 pairs of 128 rows and 128
    columns to shared memory. Each of its 2 x 12 products reads 64 rows and 128 columns."""
    kernel = explained("wgmma")
    k_chunks = (SIZE // 128) ** 2 * SIZE // 64
    copied = 2 * 128 * 64 * 4 // 128
    read = 2 * 12 * (64 + 128) * 16 * 2 // 128
    (asked,) = (u.asked for u in kernel.limits.units if u.unit == "L1 and shared memory")
    products = k_chunks * (copied + read)
    assert products < asked < 1.04 * products  # results are stored through L1
    # The predicted share of the tensor pipe (64 clocks a product) agrees with the measured one.
    pipe = unit(kernel, "tensor pipe")
    assert pipe.share == pytest.approx(2 * 12 * 64 / (copied + read), rel=0.04)
    assert pipe.measured_share == pytest.approx(pipe.share, rel=0.05)
    # The profiler counts asynchronous copies of threads as loads, and not as stores.
    for name in ("async", "mma"):
        counters = explained(name).record.counters[name]
        found = [a for a in explained(name).traced.accesses if a.copied]
        assert {(a.space, a.kind) for a in found} == {("global", "load"), ("shared", "store")}
        blocks = SIZE**2 // explained(name).traced.rows // explained(name).traced.cols
        written = blocks * sum(a.wavefronts or 0 for a in found)
        assert counters["shared_store_wavefronts"] < written / 5
        loaded = blocks * sum(a.requests for a in found if a.kind == "load")
        assert counters["global_load_requests"] > 0.99999 * loaded  # 7 digits are recorded
    assert not any(access.copied for access in explained("warptile").traced.accesses)


@BY_NAME
def test_shares_are_of_the_busiest_unit(explained, name):
    kernel = explained(name)
    shares = [limit.share for limit in kernel.limits.units]
    assert max(shares) == 1
    assert all(0 < share <= 1 for share in shares)
    several = len({access.launch for access in kernel.traced.accesses}) > 1
    assert (kernel.limits.predicted_s > kernel.limits.limiting.seconds) == several
    assert several or kernel.limits.predicted_s == kernel.limits.limiting.seconds
    measured = [limit.measured_share for limit in kernel.limits.units]
    assert all(share is None or 0 < share <= 1 for share in measured)
    assert {limit.unit for limit in kernel.limits.units} >= {"device memory", "L2 cache"}
    tensor = kernel.traced.tensor_multiply_adds > 0
    assert ("tensor pipe" in {u.unit for u in kernel.limits.units}) == tensor


@BY_NAME
def test_a_measured_gain_is_the_product_of_its_factors(explained, name):
    kernel = explained(name)
    place = NAMES.index(name)
    assert kernel.before == (NAMES[place - 1] if place else None)
    assert (kernel.gain is None) == (place == 0)
    if kernel.gain is None or kernel.gain.measured is None:
        return
    found = kernel.gain
    assert found.measured == pytest.approx(
        found.predicted * (found.compiled or 1) * (found.waiting or 1)
    )
    seconds = kernel.record.seconds
    assert found.measured == seconds[kernel.before] / kernel.limits.measured_s


def test_the_cause_names_the_larger_factor():
    def made(predicted, compiled, measured):
        return Limits((), predicted, compiled, "issue slots", measured, unmet=False)

    stalls = {"at a barrier": 2.0, "for shared memory": 1.0}
    before = ("old", made(4.0, 4.0, 4.0))
    assert "agree" in gain(before, ("new", made(2.0, 2.0, 2.04)), stalls).cause
    waiting = gain(before, ("new", made(2.0, 2.0, 3.0)), stalls).cause
    assert "Mostly waiting" in waiting
    assert "busiest unit of new 67%" in waiting
    assert "wait most at a barrier" in waiting
    assert "wait most" not in gain(before, ("new", made(2.0, 2.0, 3.0)), {"at": 0.05}).cause
    compiled = gain(before, ("new", made(2.0, 3.0, 3.0)), stalls).cause
    assert "Mostly compiled code" in compiled
    assert "For new (issue slots) it takes 150%" in compiled
    unknown = gain(before, ("new", made(2.0, None, 3.0)), {})
    assert unknown.waiting == pytest.approx(4 / 3 / 2)
    assert "cannot be split" in unknown.cause
    assert gain(before, ("new", made(2.0, None, None)), {}).measured is None
    early = dataclasses.replace(made(2.0, 2.0, 3.0), unmet=True)
    assert gain(before, ("new", early), stalls).unmet
    assert gain(("old", early), before, stalls).unmet
    assert not gain(before, before, stalls).unmet


def test_units_without_counters_have_no_measured_share(explained):
    """The tensor pipe's share is the measured one. No counter shows the shared-memory reads of the
    tensor cores."""
    for name, seen in (("mma", True), ("wgmma", False)):
        kernel = explained(name)
        assert (unit(kernel, "L1 and shared memory").measured_share is not None) == seen
        busy = kernel.record.counters[name]["tensor_pipe_percent"] / 100
        assert unit(kernel, "tensor pipe").measured_share == busy
        assert kernel.limits.compiled_unit == "tensor pipe"
        assert kernel.limits.compiled_s == pytest.approx(busy * kernel.limits.measured_s)
    for name in kernel.record.counters.keys() & set(NAMES) - {*SPLIT_FP16}:
        assert unit(explained(name), "L1 and shared memory").measured_share is not None


def test_no_kernel_was_limited_by_the_l2_cache(explained):
    """So the L2 limit, taken from an older GPU, decides no measured result."""
    shares = [unit(explained(name), "L2 cache").measured_share for name in NAMES]
    assert max(share for share in shares if share is not None) < 2 / 3


def test_occupancy_follows_the_scarcest_resource():
    gpu = Gpu(multiprocessors=132, l2_bytes=5120)
    by_threads = occupancy(gpu, 1024, 0, (1, 1), None)
    assert (by_threads.blocks, by_threads.warps, by_threads.registers_between) == (2, 64, None)
    by_shared = occupancy(gpu, 256, 200 * 1024, (8, 16), 12.5)
    assert (by_shared.blocks, by_shared.warps, by_shared.measured_warps) == (1, 8, 8)
    assert by_shared.registers_between is None
    # 8 x 8 results and 16 values: with 80 registers a thread, three blocks fit. Two were measured.
    by_registers = occupancy(gpu, 256, 8448, (8, 8), 25.0)
    assert (by_registers.blocks, by_registers.registers_a_thread) == (3, 80)
    assert by_registers.registers_between == (81, 128)


def test_a_difference_has_every_line_that_differs():
    old = "\n".join(["a", "b", *"0123456789", "c"])
    new = "\n".join(["a", "B", *"0123456789", "c", "d"])
    rows = difference(old, new)
    assert [(r.kind, r.old, r.new) for r in rows if r.kind not in ("same", "left out")] == [
        ("changed", "b", "B"),
        ("new", "", "d"),
    ]
    (left_out,) = [row for row in rows if row.kind == "left out"]
    assert left_out.old == "5 unchanged lines"
    assert [row.new_number for row in rows if row.kind == "new"] == [14]


def test_it_prints_what_limits_a_kernel(explained):
    text = repr(explained("coalesced"))
    assert "L1 and shared memory *" in text
    assert "gain over naive: predicted as written 16.50, as compiled " in text


def test_refusals():
    with pytest.raises(ValueError, match="did you mean 'vec4'"):
        explain("vec5")
    for name in ("auto", "cublas"):
        with pytest.raises(UnsupportedVariantError, match=name):
            explain(name)


def test_a_notebook_shows_the_page_in_a_frame(site):
    shown = explain("naive")._repr_html_()
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert page.startswith("<!doctype html>")


def test_pages_are_self_contained(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'(?:src|href)="(?!\w+\.html|data:)', text), path
        assert path.stat().st_size < 200_000


@BY_NAME
def test_a_page_has_every_access_of_the_trace(site, explained, name):
    (kernel,) = data_of(site / "ladder" / f"{name}.html")["kernels"]
    traced = explained(name).traced
    assert len(kernel["accesses"]) == len(traced.accesses)
    assert math.fsum(access["share"] for access in kernel["accesses"]) == pytest.approx(1)
    texts = {file["name"]: file["text"].splitlines() for file in kernel["files"]}
    for shown, counted in zip(kernel["accesses"], traced.accesses, strict=True):
        assert texts[shown["file"]][shown["line"] - 1] == counted.text
        assert shown | json.loads(json.dumps(dataclasses.asdict(counted))) == shown
    results = sum(count for count, _ in kernel["tile"]["warps"])
    assert results == traced.rows * traced.cols
    lanes = [lane for count, lane in kernel["tile"]["lanes"] for _ in range(count) if lane >= 0]
    assert len(lanes) == 32 * math.prod(explained(name).variant.thread_tile)


def test_a_page_names_the_sources_of_times_counts_and_predictions(site):
    (kernel,) = data_of(site / "ladder" / "vec4.html")["kernels"]
    (folder,) = {record.folder for record in records() if record.device == kernel["device"]}
    times, counts = (
        json.loads(sgemm_kernels.recorded_file(f"{folder}/{name}.json").read_text())
        for name in ("ladder", "traffic")
    )
    ages = (
        f" ({OLDER})" if is_older(run["sources_hash"], experiment) else ""
        for run, experiment in ((times["run"], ""), (counts, "traffic"))
    )
    hashes = [run["csrc_hash"] + age for run, age in zip((times["run"], counts), ages, strict=True)]
    assert [kernel["csrc_hash"], kernel["counted"]["csrc"]] == hashes
    assert kernel["counted"]["date"] == counts["date"][:10]
    assert kernel["build"] == sgemm_kernels.build_info().csrc_hash


@BY_NAME
def test_the_head_of_a_page_has_the_entries_of_the_file_alone(name, explained):
    """The next lines of a rung say what it computes, and how it is launched."""
    head = explained(name).head
    assert list(head) == ["idea", "block", "traffic", "bound by", "next"]
    assert "Launch" not in head["next"]


def test_a_prediction_as_compiled_needs_counters():
    def made(predicted, compiled):
        return Limits((), predicted, compiled, None, 1.0, unmet=False)

    assert gain(("old", made(4.0, 6.0)), ("new", made(2.0, 2.0)), {}).as_compiled == 3
    assert gain(("old", made(4.0, None)), ("new", made(2.0, 2.0)), {}).as_compiled is None


def test_a_custom_kernel_has_a_page(tmp_path):
    text = sgemm_kernels.source("tile1d").replace("tile1d", "mine")
    mine = sgemm_kernels.kernel(text, name="mine", like="tile1d")
    (own,) = explain(mine).kernels
    (rung,) = explain("tile1d").kernels
    assert [limit.asked for limit in own.limits.units] == [u.asked for u in rung.limits.units]
    assert (own.before, own.gain, own.difference) == (None, None, ())
    assert (own.limits.measured_s, own.head["block"]) == (None, rung.head["block"])
    (tmp_path / "mine.cu").write_text(text)
    page = tmp_path / "page.html"
    command = ["explain", str(tmp_path / "mine.cu"), "tile1d", "--like", "tile1d"]
    assert main([*command, "-o", str(page)]) == 0
    first, second = data_of(page)["kernels"]
    assert (first["name"], second["name"]) == ("mine", "tile1d")
    assert first["files"] == [{"name": "mine.cu", "text": text}]


def test_the_package_carries_recorded_results():
    assert {record.device for record in records()} >= {"NVIDIA H200"}
    for record in records():
        assert set(record.counters) <= set(record.seconds)
        assert 1e9 < record.clock_hz < 3e9


@pytest.mark.parametrize("order", [1, -1])
def test_of_records_of_one_day_the_latest_is_the_newest(tmp_path, monkeypatch, order):
    """The order of a folder's files differs between checkouts."""
    folders = [tmp_path / name for name in ("early", "late")]
    document = json.loads(sgemm_kernels.recorded_file("h200/ladder.json").read_text())
    for folder, hour in zip(folders, ("01", "06"), strict=True):
        folder.mkdir()
        document["run"] |= {"date": f"2026-11-25T{hour}:00:00+00:00", "device": folder.name}
        (folder / "ladder.json").write_text(json.dumps(document))
    monkeypatch.setattr(recorded, "_folders", lambda: folders[::order])
    recorded.records.cache_clear()
    try:
        assert [record.device for record in recorded.records()] == ["early", "late"]
        assert recorded.record_of(["vec4"]).device == "late"
    finally:
        recorded.records.cache_clear()


def test_a_recorded_result_is_found_by_its_name():
    results = sgemm_kernels.Results.from_json(sgemm_kernels.recorded_file("h200/ladder.json"))
    assert results.run.device == "NVIDIA H200"
    assert sgemm_kernels.recorded_file("ladder.json").parent.name == recorded.FOLDERS[0]
    for wrong in ("h200", "h200/nothing.json", "../pyproject.toml"):
        with pytest.raises(ValueError, match=r"use one of .*h200/ladder\.json"):
            sgemm_kernels.recorded_file(wrong)


def test_from_a_shell(tmp_path):
    def said(*arguments):
        command = [sys.executable, "-m", "sgemm_kernels", "explain", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        return done.returncode, done.stdout or done.stderr

    page = tmp_path / "page.html"
    assert said("naive", "-o", str(page)) == (0, f"{page}: the bottleneck of naive\n")
    assert [kernel["name"] for kernel in data_of(page)["kernels"]] == ["naive"]
    for wrong in ((), ("naive", "--all"), ("naive", "smem", "vec4")):
        status, text = said(*wrong, "-o", str(page))
        assert (status, "one variant, two variants, or --all" in text) == (2, True)
    assert said("vec5", "-o", str(page))[0] == 2


def test_the_ladder_from_a_shell(tmp_path, monkeypatch, capsys):
    asked_for = []
    monkeypatch.setattr("sgemm_kernels.cli.explain.save_ladder", asked_for.append)
    assert main(["explain", "--all", "-o", str(tmp_path / "site")]) == 0
    assert asked_for == [tmp_path / "site"]
    assert capsys.readouterr().out == (
        f"{tmp_path / 'site' / 'index.html'}: the ladder, with links to a page for each rung\n"
    )


# ------------------------------------------------------------------------------ in a browser

DRAWN = """[...document.querySelectorAll("details")].filter((line) => line.open).map((line) =>
    [line.querySelector(".no").textContent, line.querySelectorAll(".maps svg").length])"""
FIGURES = """new Set([...document.querySelectorAll(".tiles figure")].map((part) =>
    Math.round(part.getBoundingClientRect().width))).size"""
UNIT = """getComputedStyle(document.querySelector("td.bars"), "::before").content"""
OVERFLOWING = """[...document.querySelectorAll("main *")].filter((part) =>
    part.getBoundingClientRect().right > innerWidth + 1).map((part) => part.outerHTML)"""


@pytest.fixture(scope="module")
def page():
    shown = browser.Page()
    yield shown
    shown.close()


def opened(page, path, **how):
    page.complaints.clear()
    page.open(path, **how)
    assert page.complaints == []


@IN_BROWSER
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["index", *NAMES])
def test_a_page_opens_without_complaint_and_fits(site, page, name, width):
    opened(page, site / "ladder" / f"{name}.html", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OVERFLOWING) == []
    heading = page.evaluate("document.querySelector('h1').textContent")
    assert heading == ("The ladder, rung by rung" if name == "index" else name)
    if name == "index":
        assert page.evaluate("document.querySelectorAll('tbody tr').length") == len(NAMES)
        assert ("TFLOP/s" in page.evaluate(UNIT)) == (width == 390), "where there is no header"
        return
    assert page.evaluate(FIGURES) == 1, "all of one size"
    assert page.evaluate("document.querySelectorAll('tr.limiting').length") >= 2
    ((_, maps),) = page.evaluate(DRAWN)  # the most expensive line is open at first
    assert maps >= 1
    assert page.complaints == []


@IN_BROWSER
@BY_NAME
def test_a_line_can_be_chosen_by_mouse_and_by_keyboard(site, page, name):
    opened(page, site / "ladder" / f"{name}.html", width=1280)
    page.evaluate("document.querySelectorAll('details').forEach((line) => { line.open = false; })")
    page.click("summary")
    first = page.evaluate("document.querySelector('summary .no').textContent")
    ((line, maps),) = page.evaluate(DRAWN)
    assert (line, maps >= 1) == (first, True)
    page.click("summary")
    assert page.evaluate(DRAWN) == []
    page.press("ArrowDown")
    page.press("Enter")
    second = page.evaluate("document.querySelectorAll('summary .no')[1].textContent")
    ((line, maps),) = page.evaluate(DRAWN)
    assert (line, maps >= 1) == (second, True)
    assert page.complaints == []


@IN_BROWSER
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_threads_can_be_stepped_through(site, page, dark):
    opened(page, site / "ladder" / "naive.html", width=1280, dark=dark)
    assert "Thread 0: 4 bytes of A, row 0, column 0" in page.evaluate("document.body.innerText")
    page.evaluate("document.querySelector('.stepper input').focus()")
    for _ in range(5):
        page.press("ArrowRight")
    text = page.evaluate("document.body.innerText")
    assert "Thread 5: 4 bytes of A, row 5, column 0" in text
    assert f"Its thread 5, in {'white' if dark else 'black'}, owns 1: row 5; column 0 of" in text
    page.click(".stepper button:last-child")
    assert "Thread 6: 4 bytes of A, row 6, column 0" in page.evaluate("document.body.innerText")
    assert page.complaints == []


@IN_BROWSER
@pytest.mark.parametrize("width", [390, 1280])
def test_two_kernels_fit_side_by_side_or_stacked(site, page, width):
    opened(page, site / "two.html", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OVERFLOWING) == []
    tops = page.evaluate(
        "[...document.querySelectorAll('article')].map((part) => part.getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) == (width == 1280)
    assert page.evaluate(FIGURES) == 1


@IN_BROWSER
@pytest.mark.parametrize("known", ["nothing", "times"])
def test_a_page_says_what_was_not_measured(tmp_path, page, monkeypatch, known):
    one = records()[0]
    seconds = one.seconds if known == "times" else {}
    unknown = dataclasses.replace(one, seconds=seconds, counters={})
    monkeypatch.setattr("sgemm_kernels.measuring.recorded.records", lambda: (unknown,))
    explained = explain("coalesced")
    assert ("not measured" in repr(explained)) != bool(seconds)
    explained.save(tmp_path / "page.html")
    opened(page, tmp_path / "page.html", width=1280)
    text = page.evaluate("document.body.innerText")
    assert text.count("not measured") >= len(explained.kernels[0].limits.units)
    assert ("no profiler counts for this kernel" in text) == bool(seconds)
    assert ("It was not measured" in text) != bool(seconds)
    assert page.complaints == []


@IN_BROWSER
def test_a_page_says_which_unit_was_busiest_and_what_the_clock_was(site, page):
    for rung in ("wgmma", "waves"):
        opened(page, site / "ladder" / f"{rung}.html", width=1280)
        busiest = page.evaluate(
            "[...document.querySelectorAll('tr')].filter((row) => row.innerText.includes("
            "'measured: the busiest')).map((row) => row.cells[0].firstChild.textContent)"
        )
        assert busiest == ["tensor pipe"]
        text = page.evaluate("document.body.innerText")
        assert re.search(r"it ran at 1,\d{3} MHz and drew \d{3} W: it hits the power limit", text)
    opened(page, site / "ladder" / "vec4.html", width=1280)  # at the full clock
    text = page.evaluate("document.body.innerText")
    assert re.search(
        r"Run back to back for seconds, it ran at 1,\d{3} MHz and drew \d{3} W\.", text
    )


@IN_BROWSER
@pytest.mark.parametrize("early", [(), ("coalesced",), ("naive",)])
def test_a_page_marks_figures_of_too_few_samples(tmp_path, page, monkeypatch, early):
    """A time has its own mark. A gain is marked if either of its times is."""
    one = dataclasses.replace(records()[0], unmet=frozenset(early))
    monkeypatch.setattr("sgemm_kernels.measuring.recorded.records", lambda: (one,))
    monkeypatch.setattr("sgemm_kernels.explaining.pages._rungs", lambda: RUNGS[:2])
    explained = explain("coalesced")
    save_ladder(tmp_path)
    texts = [repr(explained)]
    for name in ("coalesced", "index"):
        opened(page, tmp_path / f"{name}.html", width=1280)
        texts.append(page.evaluate("document.body.innerText"))
    in_text, on_page, on_ladder = texts
    for text in texts:
        assert ("criteria were met" in text) == bool(early)
    for text in (in_text, on_page):
        assert (" ms*" in text) == ("coalesced" in early)
    for text, figure in ((in_text, r"measured \d+\.\d\d"), (on_page, r"= [\d.]+")):
        assert bool(re.search(rf"{figure}\*", text)) == bool(early)
    # On the ladder's page: one time in TFLOP/s, and the one gain computed from it.
    assert on_ladder.count("*") == 3 * len(early)


@IN_BROWSER
def test_errors_in_a_page_are_noticed(tmp_path, page):
    wrong = tmp_path / "wrong.html"
    wrong.write_text("<script>undefined.x</script><img src='http://127.0.0.1:9/x.png'>")
    page.complaints.clear()
    page.open(wrong, width=400)
    assert len(page.complaints) >= 2
    page.complaints.clear()


def test_the_headings_of_the_source_fit_in_their_columns():
    """Between words they may break. DejaVu Sans Mono, a wide font, has 0.602 em per character."""
    page = Path(pages.__file__).parent / "page"
    css, script = ((page / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    (columns,) = re.findall(r"^\.row \{.*?grid-template-columns: ([^;]+);", css, re.MULTILINE)
    widths = [float(width) for width in re.findall(r"(?<= )([\d.]+)rem(?= |$)", columns)]
    (headings,) = re.findall(r"^const COLUMNS = (.*);$", script, re.MULTILINE)
    (size,) = re.findall(r"^\.row \.number \{ font-size: ([\d.]+)rem; \}", css, re.MULTILINE)
    breaks = re.search(r"^\.heads \.number \{.*white-space: normal", css, re.MULTILINE)
    for heading, width in zip(json.loads(headings), widths, strict=True):
        longest = max(map(len, heading.split())) if breaks else len(heading)
        assert longest * 0.602 * float(size) <= width, heading
