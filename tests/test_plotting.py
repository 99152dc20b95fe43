"""Plots and documents made from results. The results are made up."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from sgemm_kernels import Results, _style, recorded_file, variants
from sgemm_kernels.__main__ import main
from sgemm_kernels.cli.report import renew
from sgemm_kernels.measuring.measurement import CPU_WARNING, KINDS
from sgemm_kernels.measuring.plotting import common_shape, plot, read_traffic

from . import browser
from .support import python

MADE_UP = Path(__file__).parent / "data" / "results_schema_1.json"
RECORDED = Path(__file__).parent.parent / "benchmarks/results"
RESULTS = Results.from_json(MADE_UP)
ON_H100 = dataclasses.replace(
    RESULTS, run=dataclasses.replace(RESULTS.run, device="A Made-Up H100")
)
LARGEST = (16384, 4096, 4096)
DEEP = "[" * 100_000
OF_OTHER_FILES = ("counters", "calls", "clocks", "recomputing", "tuning")
"""Kinds of blocks made from files other than results of ``measure``."""
NAIVE, VEC4 = (
    {
        "dram_bytes": bytes_moved,
        "l2_sectors": 1e8,
        "shared_load_wavefronts": 1e6,
        "shared_store_wavefronts": 0.0,
        "global_load_sectors": sectors,
        "global_store_sectors": 0.0,
        "issue_slots_percent": 12.0,
        "multiply_adds": 1e9,
        "tensor_pipe_percent": 0.5,
        "lines": [{"kind": "load", "sectors_per_request": each, "bytes_per_thread": 4}],
    }
    for bytes_moved, sectors, each in ((4e9, 1e12, 32), (1e9, 1e8, 4))
)
TRAFFIC = {"naive": NAIVE, "vec4": VEC4, "cublas": {"dram_bytes": 5e8}}
OPTIONS = {
    "speed": {},
    "pair": {"pair": ("vec4", "cublas")},
    "speedup": {},
    "limits": {"traffic": TRAFFIC},
}


def shown_by(kind):
    """Made-up results; for limits, results of a GPU whose limits are known."""
    return ON_H100 if kind == "limits" else RESULTS


def texts(picture):
    """All texts of a picture."""
    drawn = picture.findobj(lambda artist: hasattr(artist, "get_text"))
    return " | ".join(text.get_text() for text in drawn)


def on_the_cpu(results):
    run = dataclasses.replace(results.run, kind="cpu", device="A CPU", ffma_gflops=None)
    rows = tuple(dataclasses.replace(row, run=run) for row in results.rows)
    return Results(run, rows)


@pytest.mark.parametrize("dark", [None, True], ids=["reader's", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_is_drawn_and_saved_repeatably(tmp_path, kind, dark):
    for name in ("a.svg", "b.svg"):
        shown_by(kind).plot(kind, dark=dark, **OPTIONS[kind]).save(tmp_path / name)
    saved = (tmp_path / "a.svg").read_bytes()
    assert saved.startswith(b"<?xml")
    assert saved == (tmp_path / "b.svg").read_bytes()


NUMBER = r"-?\d+(?:\.\d+)?"


def svg_shapes(path):
    """Each path with its numbers, each marker with its place, each text."""
    for element in ElementTree.parse(path).iter():
        name, numbers = element.tag.rpartition("}")[2], []
        if name in ("path", "use"):
            places = (element.get(attribute, "") for attribute in ("d", "x", "y"))
            numbers = [float(number) for number in re.findall(NUMBER, " ".join(places))]
        if name in ("path", "use", "text"):
            yield name, numbers, element.text if name == "text" else None


@pytest.mark.parametrize("kind", KINDS)
def test_an_svg_is_short_and_shows_the_same(tmp_path, kind):
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = shown_by(kind).plot(kind, **OPTIONS[kind])
    with plt.rc_context({"svg.fonttype": "none"}):
        drawn.savefig(tmp_path / "long.svg")
    drawn.save(tmp_path / "short.svg")
    long, short = ((tmp_path / name).read_text() for name in ("long.svg", "short.svg"))
    assert len(short) < 0.7 * len(long)
    assert 2 * short.count("\n") < long.count("\n")
    before, after = (list(svg_shapes(tmp_path / name)) for name in ("long.svg", "short.svg"))
    assert len(before) == len(after) > 30
    for (name, exact, text), (same, rounded, kept) in zip(before, after, strict=True):
        assert (name, text) == (same, kept)
        assert rounded == pytest.approx(exact, abs=0.006)


def colours_of(path):
    """The colours of an SVG, and the replacements of its style for dark pages."""
    text = path.read_text()
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    replaced = re.findall(r'^\[(fill|stroke)="(#\w+)"\]\{\1:(#\w+)\}$', style, re.MULTILINE)
    found = set(re.findall(r'(fill|stroke)="(#\w+)"', text.replace(style, "")))
    return found, {(paint, light): dark for paint, light, dark in replaced}


@pytest.mark.parametrize("kind", KINDS)
def test_an_svg_has_the_readers_theme_unless_one_is_chosen(tmp_path, kind):
    for name, dark in (("either", None), ("light", False), ("dark", True)):
        shown_by(kind).plot(kind, dark=dark, **OPTIONS[kind]).save(tmp_path / f"{name}.svg")
    (either, replaced), (light, none), (dark, no) = (
        colours_of(tmp_path / f"{name}.svg") for name in ("either", "light", "dark")
    )
    assert either == light != dark
    assert none == no == {}
    assert "(prefers-color-scheme: dark)" in (tmp_path / "either.svg").read_text()
    assert {(paint, replaced.get((paint, colour), colour)) for paint, colour in either} == dark


@pytest.mark.parametrize("kind", KINDS)
def test_light_and_dark_differ(kind):
    results, options = shown_by(kind), OPTIONS[kind]
    papers = [plot(results, kind, dark=d, **options).get_facecolor() for d in (False, True)]
    assert sum(papers[0][:3]) > 2.5
    assert sum(papers[1][:3]) < 0.5


def luminance(colour):
    """Relative luminance as defined by the Web Content Accessibility Guidelines."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
             for part in to_rgb(colour)]  # fmt: skip
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one, other):
    dark, light = sorted(luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def test_a_rung_has_one_colour_with_contrast_on_both_backgrounds():
    names = [variant.name for variant in variants()]
    drawn = []
    for dark in (False, True):
        (axes,) = plot(RESULTS, dark=dark).axes
        drawn.append([to_hex(line.get_color()) for line in axes.lines[: len(RESULTS.variants)]])
    assert drawn[0] == drawn[1] == [_style.look(name).colour for name in RESULTS.variants]
    for colour in {*_style.SERIES, *(_style.look(name).colour for name in names)}:
        for dark in (False, True):
            assert contrast(colour, _style.theme(dark).paper) > 3, colour


def test_rungs_and_libraries_are_told_apart_without_colours():
    looks = {variant.name: _style.look(variant.name) for variant in variants()}
    rungs = [_style.look(variant.name) for variant in variants() if variant.file is not None]
    assert len({look.marker for look in rungs}) == len(rungs)
    choices = [looks[name] for name in ("simt", "auto", "invariant")]
    assert len({(look.marker, look.width) for look in choices}) == len(choices)
    assert {look.dashes for look in rungs} == {"-"}
    assert looks["auto"].width > looks["simt"].width == rungs[0].width
    assert looks["auto"].colour == looks["simt"].colour not in {look.colour for look in rungs}
    libraries = [_style.look(name) for name in ("cublas", "CuPy", "PyTorch", "numpy")]
    assert all(look.line()["markerfacecolor"] == "none" for look in libraries)
    assert "-" not in {look.dashes for look in libraries}
    assert len({(look.dashes, look.marker) for look in libraries}) == len(libraries)


def test_a_longer_ladder_has_a_marker_for_each_rung(monkeypatch):
    rungs = [SimpleNamespace(name=f"rung{place}", file="a file") for place in range(40)]
    monkeypatch.setattr("sgemm_kernels._style.variants", lambda: rungs)
    looks = [_style.look(rung.name) for rung in rungs]
    assert len({look.marker for look in looks}) == len(rungs)
    axes = Figure().add_subplot()
    for look in looks:
        axes.plot([1, 2], **look.line())


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([], []),
        ([5.0], [5.0]),
        ([0.0, 20.0], [0.0, 20.0]),
        ([0.0, 4.0], [-3.0, 7.0]),
        ([0.0, 0.0, 0.0], [-10.0, 0.0, 10.0]),
        ([0.0, 30.0, 34.0], [0.0, 27.0, 37.0]),
        ([0.0, 9.0, 9.0], [-4.0, 6.0, 16.0]),
    ],
)
def test_labels_move_as_little_as_possible(wanted, places):
    assert _style.spread(wanted, 10.0) == pytest.approx(places)


def test_labels_are_at_the_line_ends_and_merge_if_they_coincide():
    """The names at the top are close together; none may be above the peak."""
    with _style.drawing("", "", dark=False) as (picture, _):
        axes = picture.add_subplot()
        axes.plot([0, 1], [0, 100])
        ends = [(10.0, "low", "#000000"), (50.0, "one", "#ff0000"), (50.1, "two", "#00ff00")]
        _style.label_ends(axes, [*ends, (90.0, "peak", "#0000ff")])
    assert [text.get_text() for text in axes.texts] == ["low", "two, one", "peak"]
    for text, height in zip(axes.texts, (10, 50, 90), strict=True):
        (_, middle), box = axes.transData.transform((1, height)), Text.get_window_extent(text)
        assert abs((box.y0 + box.y1) / 2 - middle) < 4


OUTSIDE = """
(() => {
    const whole = document.documentElement.getBoundingClientRect();
    return [...document.querySelectorAll("text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < 0 || box.right > whole.width || box.top < 0 || box.bottom > whole.height;
    }).map(text => text.textContent);
})()
"""
PAPER_AND_TITLE = """
["path", "text"].map(name => getComputedStyle(document.querySelector(name)).fill)
"""


@pytest.mark.skipif(browser.find() is None, reason="there is no Chromium to open pictures")
def test_committed_pictures_are_whole_and_follow_the_readers_theme():
    page = browser.Page()
    try:
        for picture in sorted(RECORDED.glob("*/*.svg")):
            for dark in (False, True):
                page.open(picture, width=1200, height=1800, dark=dark)
                assert page.evaluate(OUTSIDE) == [], picture
                paper, text = (
                    [int(number) / 255 for number in re.findall(r"\d+", colour)]
                    for colour in page.evaluate(PAPER_AND_TITLE)
                )
                assert to_hex(paper) == _style.theme(dark).paper, picture
                assert to_hex(text) in (_style.theme(dark).ink, _style.theme(dark).grey), picture
        assert page.complaints == []
    finally:
        page.close()


def test_long_titles_and_notes_stay_in_the_picture():
    with _style.drawing("a title of many words " * 5, "a note of many words, " * 20) as (
        picture,
        _,
    ):
        picture.add_subplot()
    title, note = picture._suptitle, picture._supxlabel
    assert title.get_fontsize() < 14
    assert note.get_text().count("\n") >= 2
    for text in (title, note):
        assert text.get_window_extent().x1 <= picture.bbox.width


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_overlaps_or_leaves_the_picture(kind):
    picture = plot(shown_by(kind), kind, **OPTIONS[kind])
    picture.draw_without_rendering()
    labels = picture.axes[0].texts
    # The text's own extent: an annotation's extent would include the line to its point.
    boxes = [Text.get_window_extent(label) for label in labels]
    for box in boxes:
        assert box.x0 >= 0
        assert box.x1 <= picture.bbox.width + 1
    for index, box in enumerate(boxes):
        others = boxes[index + 1 :]
        touching = [labels[index + 1 + i] for i, o in enumerate(others) if _deep(box, o)]
        assert not touching, (labels[index], touching)


def _deep(a, b):
    """True if two boxes share more than the leading of their lines."""
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return width > 0 and height > 4


def test_speed_has_a_line_for_each_variant_with_cublas_and_the_peak():
    picture = plot(RESULTS)
    (axes,) = picture.axes
    assert len(axes.lines) == len(RESULTS.variants) + 1
    for name in ("naive", "prefetch", "cuBLAS", "peak of CUDA cores", "A Made-Up GPU"):
        assert name in texts(picture)
    vec4 = axes.lines[RESULTS.variants.index("vec4")]
    assert list(vec4.get_xdata()) == [128, 1024, 4096]
    assert vec4.get_ydata()[-1] == pytest.approx(
        RESULTS.find("vec4", (4096, 4096, 4096)).gflops / 1e3
    )
    tile2d = axes.lines[RESULTS.variants.index("tile2d")]
    assert list(tile2d.get_xdata()) == [1024, 4096], "a wrong result is not drawn"


def test_speed_shows_small_sizes_beside_a_faster_tf32_reference():
    results = Results.from_json(MADE_UP.with_name("results_schema_2.json"))
    picture = plot(results)
    (axes,) = picture.axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[1] > 300
    assert "cuBLAS TF32, error 2.6e-4" in texts(picture)
    assert "tf32" not in texts(plot(results, "speedup")).lower()


def test_speed_within_a_factor_of_ten_has_readable_tick_labels():
    few = tuple(row for row in RESULTS.rows if row.variant == "vec4" and row.M > 1000)
    run = dataclasses.replace(RESULTS.run, ffma_gflops=None)
    picture = plot(Results(run, few))
    picture.canvas.draw()
    marks = [label.get_text() for label in picture.axes[0].get_yticklabels(which="minor")]
    assert any(marks)
    assert not [mark for mark in marks if "$" in mark]


def test_pair_shows_the_ratio_at_every_shape():
    (axes,) = plot(RESULTS, "pair", pair=("vec4", "cublas")).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(
        [row.vs_cublas for row in RESULTS.rows if row.variant == "vec4"]
    )


def test_speedup_shows_the_gain_of_each_rung():
    picture = plot(RESULTS, "speedup")
    assert "16384x4096x4096" in texts(picture)
    vec4, before = (RESULTS.find(name, LARGEST).median_s for name in ("vec4", "tile2d"))
    assert f"({before / vec4:.2f}x over the rung before)" in texts(picture)


@pytest.mark.parametrize("early", [None, "naive", "vec4"])
def test_speedup_marks_undersampled_rungs(early):
    """Each speedup is relative to the first rung: if that is marked, all bars are."""
    rows = tuple(
        dataclasses.replace(row, unmet=("samples: 3",) if row.variant == early else ())
        for row in RESULTS.rows
    )
    (axes,) = plot(dataclasses.replace(RESULTS, rows=rows), "speedup").axes
    marked = [bool(re.match(r"[\d.]+x\*", text.get_text())) for text in axes.texts]
    assert marked == [early == "naive" or row.variant == early for row in RESULTS.rows[-8:]]


def drawn_cells(axes):
    """The rows of a table that is drawn as a picture, by name."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    texts = [text.get_text() for text in axes.texts]
    width = len(texts) // len(names)
    return {name: texts[i * width : (i + 1) * width] for i, name in enumerate(names)}


def test_limits_are_shares_of_the_gpus_peaks():
    (axes,) = plot(ON_H100, "limits", traffic=TRAFFIC).axes
    found = drawn_cells(axes)
    assert list(found) == ["naive", "vec4", "cuBLAS"]
    naive, vec4 = (RESULTS.find(name, LARGEST).median_s for name in ("naive", "vec4"))
    bandwidth, clocks = RESULTS.run.copy_bytes_per_s, 132 * 1980e6
    assert found["vec4"] == [
        f"{1e9 / vec4 / bandwidth:.0%}",
        f"{1e8 * 32 / (80 * 64) / vec4 / (clocks / 132):.0%}",
        f"{(1e6 + 1e8 / 4) / vec4 / clocks:.0%}",
        "12%",
        f"{2 * 1e9 / vec4 / RESULTS.run.ffma_gflops / 1e9:.0%}",
        "0%",
    ]
    assert found["naive"][2] == f"{(1e6 + 1e12) / naive / clocks:.0%}", "by sectors"
    assert found["cuBLAS"][1:] == ["-"] * 5, "not counted"


def test_a_request_for_one_sector_takes_a_cycle():
    one = [{"kind": "load", "sectors_per_request": 1, "bytes_per_thread": 4}]
    (axes,) = plot(ON_H100, "limits", traffic={"vec4": VEC4 | {"lines": one}}).axes
    seconds, clocks = RESULTS.find("vec4", LARGEST).median_s, 132 * 1980e6
    assert drawn_cells(axes)["vec4"][2] == f"{(1e6 + 1e8) / seconds / clocks:.0%}"


def test_limits_use_the_counted_lines_per_request():
    """Sixteen bytes per thread, each in its own cache line: as many cycles as sectors."""
    apart = {"kind": "load", "sectors_per_request": 16, "bytes_per_thread": 16}
    shares = []
    for counted in (apart, apart | {"lines_per_request": 16}):
        (axes,) = plot(ON_H100, "limits", traffic={"vec4": VEC4 | {"lines": [counted]}}).axes
        shares.append(drawn_cells(axes)["vec4"][2])
    seconds, clocks = RESULTS.find("vec4", LARGEST).median_s, 132 * 1980e6
    assert shares == [f"{(1e6 + n) / seconds / clocks:.0%}" for n in (1e8 / 4, 1e8)]


def test_tensor_cores_are_a_limit_of_their_own():
    busy = VEC4 | {"tensor_pipe_percent": 91.2}
    (axes,) = plot(ON_H100, "limits", traffic={"vec4": busy}).axes
    (bold,) = [text for text in axes.texts if text.get_fontweight() == "bold"]
    assert (drawn_cells(axes)["vec4"][-1], bold.get_text()) == ("91%", "91%")


@pytest.mark.parametrize("merged", [4, 5])
def test_loads_that_the_gpu_does_not_count_are_left_out(merged):
    """The compiler may merge four loads of a word into one. If more are missing, tensor cores read
    the data directly."""
    counted = {"shared_load_wavefronts": merged * VEC4["shared_load_wavefronts"]}
    (axes,) = plot(ON_H100, "limits", traffic={"vec4": VEC4 | {"counted": counted}}).axes
    assert (drawn_cells(axes)["vec4"][2] == "-") == (merged == 5)


def test_the_nearest_limit_is_outlined():
    (axes,) = plot(ON_H100, "limits", traffic={"vec4": VEC4}).axes
    (bold,) = [text for text in axes.texts if text.get_fontweight() == "bold"]
    shares = [float(text.get_text().rstrip("%")) for text in axes.texts]
    assert float(bold.get_text().rstrip("%")) == max(shares)


def test_unmet_criteria_are_crossed_out():
    rows = tuple(
        dataclasses.replace(row, unmet=("samples: 3 (at least 10)",))
        if (row.variant, row.shape) == ("vec4", (1024, 1024, 1024))
        else dataclasses.replace(row, unmet=())
        for row in RESULTS.rows
    )
    bare = tuple(dataclasses.replace(row, unmet=()) for row in RESULTS.rows)
    for results, at in ((Results(RESULTS.run, rows), [[1024]]), (Results(RESULTS.run, bare), [])):
        picture = plot(results)
        crosses = [line for line in picture.axes[0].lines if line.get_marker() == "x"]
        assert [list(cross.get_xdata()) for cross in crosses] == at
        assert ("sampling ended before its criteria were met" in texts(picture)) == bool(at)


def test_the_cpu_device_is_labelled_and_never_compared():
    results = on_the_cpu(RESULTS)
    for kind in ("speed", "speedup"):
        assert CPU_WARNING in texts(plot(results, kind))
        assert "float32, whole calls, " in texts(plot(results, kind))
    assert "cuBLAS" not in texts(plot(results, "speedup"))
    with pytest.raises(ValueError, match="cannot be compared"):
        plot(results, "pair", pair=("vec4", "cublas"))


@pytest.mark.parametrize(
    ("kind", "options", "fact"),
    [
        ("pie", {}, "'pie'"),
        ("pair", {}, "two variants"),
        ("pair", {"pair": ("vec4", "tile9")}, "tile9"),
        ("speedup", {"size": (7, 7, 7)}, "at 7"),
        ("limits", {}, "traffic.py"),
        ("limits", {"traffic": {"tile9": VEC4}}, "no variant"),
    ],
)
def test_unsupported_plots_are_refused(kind, options, fact):
    with pytest.raises(ValueError, match=fact):
        plot(shown_by(kind), kind, **options)


def test_limits_need_a_gpu_whose_limits_are_known():
    with pytest.raises(ValueError, match="'A Made-Up GPU'"):
        plot(RESULTS, "limits", traffic=TRAFFIC)


def test_limits_need_times_and_counts_of_one_gpu(tmp_path):
    counted = json.loads(recorded_file("traffic.json").read_text())
    for device, fits in ((counted["device"], True), ("Another GPU", False)):
        (tmp_path / "t.json").write_text(json.dumps(counted | {"device": device}))
        arguments = ["--kind", "limits", "--traffic", str(tmp_path / "t.json")]
        times = str(recorded_file("ladder.json"))
        status = main(["plot", times, "-o", str(tmp_path / "p.svg"), *arguments])
        assert (status == 0) == fits


def test_limits_need_the_probe_and_the_clock():
    bare = dataclasses.replace(RESULTS, run=dataclasses.replace(RESULTS.run, ffma_gflops=None))
    with pytest.raises(ValueError, match="probe"):
        plot(bare, "limits", traffic=TRAFFIC)
    with pytest.raises(ValueError, match="clock"):
        plot(dataclasses.replace(ON_H100, readings=()), "limits", traffic=TRAFFIC)


def test_common_shape_is_the_largest_shared_one():
    assert common_shape(RESULTS) == LARGEST
    small = Results(RESULTS.run, RESULTS.rows[:8])
    with pytest.raises(ValueError, match="no shape"):
        common_shape(small)  # tile2d was wrong there


@pytest.mark.parametrize("text", ["no JSON", "[1, 2]", "{}", '{"rows": [1]}', DEEP])
def test_the_error_for_malformed_counts_names_the_file(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read_traffic(path, LARGEST)


def test_common_shape_has_gpu_counts(tmp_path):
    path = tmp_path / "traffic.json"
    path.write_text(
        '{"rows": [{"variant": "vec4", "M": 1024, "N": 1024, "K": 1024, "dram_bytes": 300},'
        '{"variant": "vec4", "M": 4096, "N": 4096, "K": 4096, "dram_bytes": null}]}'
    )
    assert common_shape(RESULTS, path) == (1024, 1024, 1024)
    path.write_text('{"rows": []}')
    with pytest.raises(ValueError, match="no GPU counters"):
        common_shape(RESULTS, path)


def test_a_notebook_shows_it():
    assert plot(RESULTS)._repr_png_().startswith(b"\x89PNG")


def test_read_traffic(tmp_path):
    path = tmp_path / "traffic.json"
    path.write_text(
        '{"rows": [{"variant": "vec4", "M": 4, "N": 4, "K": 4, "dram_bytes": 300},'
        '{"variant": "naive", "M": 4, "N": 4, "K": 4, "dram_bytes": null},'
        '{"variant": "smem", "M": 5, "N": 4, "K": 4, "dram_bytes": 1}]}'
    )
    found = read_traffic(path, (4, 4, 4))
    assert {name: row["dram_bytes"] for name, row in found.items()} == {"vec4": 300}
    with pytest.raises(ValueError, match="at 9"):
        read_traffic(path, (9, 9, 9))


def test_the_command(tmp_path, capsys):
    picture = tmp_path / "p.svg"
    arguments = ["--kind", "pair", "--pair", "vec4", "tile1d", "--dark"]
    assert main(["plot", str(MADE_UP), "-o", str(picture), *arguments]) == 0
    assert picture.read_bytes().startswith(b"<?xml")
    assert main(["plot", str(MADE_UP), "-o", str(picture), "--kind", "pair"]) == 2
    assert "two variants" in capsys.readouterr().err


def test_the_command_draws_the_limits_of_the_committed_results(tmp_path):
    results = recorded_file("ladder.json").parent
    picture = tmp_path / "p.svg"
    traffic = ["--kind", "limits", "--traffic", str(results / "traffic.json")]
    assert main(["plot", str(results / "ladder.json"), "-o", str(picture), *traffic]) == 0
    assert picture.read_bytes().startswith(b"<?xml")


def test_without_matplotlib_the_error_names_the_extra():
    script = f"""
        import sys
        sys.modules["matplotlib"] = None
        from sgemm_kernels.__main__ import main
        sys.exit(main(["plot", {str(MADE_UP)!r}, "-o", "p.svg"]))
    """
    process = python(script)
    assert process.returncode == 2
    assert "pip install matplotlib" in process.stderr


def renewed(document, words):
    """The text of a document with one block."""
    document.write_text(f"<!-- results: {words} -->\n<!-- end of results -->\n")
    renew(document)
    return document.read_text()


def undersampled(document, early):
    """Replaces the results with ones in which these variants have too few samples."""
    rows = tuple(
        dataclasses.replace(row, unmet=("samples: 3",) if row.variant in early else ())
        for row in RESULTS.rows
    )
    dataclasses.replace(RESULTS, rows=rows).to_json(document.parent / "results" / "r.json")


class TestReport:
    DOCUMENT = """# Title

<!-- results: table results/r.json -->
stale
<!-- end of results -->
between
<!-- results: spread results/r.json results/r.json -->
<!-- end of results -->
"""

    @pytest.fixture
    def document(self, tmp_path):
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "r.json").write_bytes(MADE_UP.read_bytes())
        path = tmp_path / "README.md"
        path.write_text(self.DOCUMENT)
        return path

    def test_writes_blocks_and_leaves_the_rest(self, document):
        renew(document)
        text = document.read_text()
        assert RESULTS.to_markdown() in text
        assert "stale" not in text
        assert text.startswith("# Title\n\n<!-- results: table")
        assert "\nbetween\n" in text

    @pytest.mark.parametrize("early", [(), ("vec4",), ("tile2d",), ("cublas",)])
    def test_the_ladder_marks_undersampled_figures(self, document, early):
        """A speed is marked for its own time, a ratio for either time; links are relative to the
        document."""
        undersampled(document, early)
        text = renewed(document, "ladder results/r.json#4096 csrc")
        lines = re.findall(r"^\| (?:\[)?`(\w+)`.*$", text, re.MULTILINE)
        assert lines == [variant.name for variant in variants()]
        (vec4,) = re.findall(
            r"^\| \[`vec4`\]\(csrc/ladder/06_vec4.cu\) \| (.+) \|$", text, re.MULTILINE
        )
        marked = [cell.endswith("*") for cell in vec4.split(" | ")[1:]]
        row = RESULTS.find("vec4", 4096)
        assert vec4.split(" | ")[1].rstrip("*") == f"{row.gflops / 1e3:.3g}"
        of_either = [bool({"vec4", other} & set(early)) for other in ("cublas", "tile2d")]
        assert marked == ["vec4" in early, *of_either]
        assert ("criteria were met" in text) == bool(early)
        assert "| [`async`](csrc/ladder/09_async.cu) |" in text

    @pytest.mark.parametrize("early", [(), ("vec4",), ("cublas",)])
    def test_a_speedup_is_a_sentence_with_marks(self, document, early):
        undersampled(document, early)
        text = renewed(document, "speedup results/r.json#4096 vec4")
        row = RESULTS.find("vec4", 4096)
        speed = f"{row.gflops / 1e3:.3g}{'*' if 'vec4' in early else ''}"
        assert f"`vec4` reaches {speed} TFLOP/s on an {RESULTS.run.device}." in text
        ratio = f"{row.vs_cublas:.2f}{'*' if early else ''}"
        assert f"That is {ratio} times the speed of cuBLAS in float32." in text
        assert ("criteria were met" in text) == bool(early)
        document.write_text(document.read_text().replace("#4096", "#4097"))
        renew(document)
        assert "\nNot measured yet.\n" in document.read_text()

    def test_is_repeatable(self, document):
        renew(document)
        first = document.read_bytes()
        renew(document)
        assert document.read_bytes() == first

    def test_the_command(self, document, capsys):
        assert main(["report", str(document)]) == 0
        assert capsys.readouterr().out == f"{document}\n"

    @pytest.mark.parametrize(
        ("words", "fact"),
        [
            ("table", "'table RESULTS'"),
            ("verse results/r.json", "'verse'"),
            ("table results/r.json results/r.json", "'table RESULTS'"),
            ("spread results/r.json", "at least two"),
            ("table results/missing.json", "missing.json"),
            ("ladder results/r.json csrc", "'ladder RESULTS#N CSRC'"),
            ("speedup results/r.json vec4", "'speedup RESULTS#N VARIANT'"),
            ("ratios results/r.json", "'ratios RESULTS SUITE'"),
            ("ratios results/r.json suite.json", "one variant besides cuBLAS"),
            *((f"{kind} deep.json", "deep.json is not JSON") for kind in OF_OTHER_FILES),
            *((f"{kind} results/r.json", "lacks data") for kind in OF_OTHER_FILES[:-1]),
            ("tuning results/r.json", "results/r.json does not hold a tuning"),
        ],
    )
    def test_a_block_that_cannot_be_made(self, document, capsys, words, fact):
        (document.parent / "suite.json").write_text("{}")
        (document.parent / "deep.json").write_text(DEEP)
        document.write_text(f"<!-- results: {words} -->\n<!-- end of results -->\n")
        before = document.read_text()
        assert main(["report", str(document)]) == 2
        assert fact in capsys.readouterr().err
        assert document.read_text() == before

    def test_a_document_that_is_not_text_is_named(self, tmp_path, capsys):
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
        assert main(["report", str(tmp_path / "a.npy")]) == 2
        assert f"{tmp_path / 'a.npy'} is not UTF-8 text" in capsys.readouterr().err

    def test_a_spread_shows_how_much_runs_differ(self, document):
        (document.parent / "results" / "r-2.json").write_bytes(MADE_UP.read_bytes())
        again = Results.from_json(document.parent / "results" / "r-2.json")
        vec4 = again.find("vec4", LARGEST)
        slower = dataclasses.replace(vec4, samples_s=tuple(1.1 * s for s in vec4.samples_s))
        rows = tuple(slower if row is vec4 else row for row in again.rows)
        dataclasses.replace(again, rows=rows).to_json(document.parent / "results" / "r-2.json")
        text = renewed(document, "spread results/r.json results/r-2.json")
        assert f"| vec4 | 0.0% | {0.1 / 1.05:.1%} | 16384x4096x4096 |" in text
        assert "| naive | 0.0% | 0.0% |" in text
        assert "2 runs on A Made-Up GPU" in text

    @pytest.mark.parametrize("early", [(), ("vec4",)])
    def test_a_spread_marks_undersampled_figures(self, document, early):
        undersampled(document, early)
        text = renewed(document, "spread results/r.json results/r.json")
        assert ("| vec4 | 0.0%* | 0.0%* |" in text) == bool(early)
        assert "| naive | 0.0% | 0.0% |" in text
        assert ("criteria were met" in text) == bool(early)

    def test_a_spread_needs_runs_of_the_same_sources(self, document, capsys):
        run = dataclasses.replace(RESULTS.run, csrc_hash="other")
        rows = tuple(dataclasses.replace(row, run=run) for row in RESULTS.rows)
        Results(run, rows).to_json(document.parent / "results" / "r-2.json")
        document.write_text(
            "<!-- results: spread results/r.json results/r-2.json -->\n<!-- end of results -->\n"
        )
        assert main(["report", str(document)]) == 2
        assert "csrc_hash" in capsys.readouterr().err

    def counted(self, document, *rows):
        """The counters table of these rows, as one list of cells per line."""
        head = {
            "device": "A GPU",
            "cuda_toolkit": "13.0",
            "csrc_hash": "0123",
            "date": "2026-01-02T",
        }
        path = document.parent / "results" / "traffic.json"
        path.write_text(json.dumps({**head, "rows": rows}))
        lines = renewed(document, "counters results/traffic.json").splitlines()
        return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")], lines

    def test_counters_show_the_largest_size_and_only_counted_values(self, document):
        def row(variant, M, gpu, **more):
            return {"variant": variant, "M": M, "gpu": gpu, **more}

        wide = {"instructions": 100.0, "multiply_adds": 2400.0, "issue_slots_percent": 97.5}
        shared = {"shared_load_requests": 8.0, "shared_load_wavefronts": 12.0}
        none = {"shared_load_requests": 0.0, "shared_load_wavefronts": 0.0}
        cells, lines = self.counted(
            document,
            row("naive", 64, wide),
            row("naive", 128, none, clock_mhz=None),
            row("vec4", 128, wide | shared, clock_mhz=1755.0),
            row("mma", 128, wide | shared | {"tensor_pipe_percent": 66.0}, clock_mhz=1755.0),
            row("auto", 128, None),
        )
        assert cells == [
            [
                "issue slots",
                "FFMA of instructions",
                "tensor pipe",
                "wavefronts per shared load",
                "MHz",
            ],
            [":--", "--:", "--:", "--:", "--:", "--:"],
            ["naive", "-", "-", "-", "-", "-"],
            ["vec4", "97.5%", "75.0%", "-", "1.50", "1755"],
            ["mma", "97.5%", "75.0%", "66.0%", "-", "1755"],
            ["auto", "-", "-", "-", "-", "-"],
        ]
        assert (
            "128 x 128 x 128, A GPU, CUDA 13.0, csrc 0123, 2026-01-02, by Nsight Compute." in lines
        )

    def test_the_block_says_if_nothing_was_counted(self, document):
        _, lines = self.counted(document, {"variant": "naive", "M": 64, "gpu": None})
        assert lines[1] == "Not measured yet."

    def test_ratios_over_a_suite_are_by_kind(self, document):
        (document.parent / "suite.json").write_text('{"square": [[1024, 1024, 1024]], "deep": []}')
        rows = tuple(row for row in RESULTS.rows if row.variant in ("naive", "cublas"))
        Results(RESULTS.run, rows).to_json(document.parent / "results" / "r.json")
        lines = renewed(document, "ratios results/r.json suite.json").splitlines()
        ratio = RESULTS.find("naive", (1024, 1024, 1024)).vs_cublas
        assert "| naive / cuBLAS | NN | all |" in lines
        assert (
            f"| square | {ratio:.3f}, worst {ratio:.2f} | {ratio:.3f}, worst {ratio:.2f} |" in lines
        )
        assert f"| 1024 x 1024 x 1024 | {ratio:.2f} |  |" in lines
        assert "| deep | - | - |" in lines
        early = tuple(dataclasses.replace(row, unmet=("samples: 3",)) for row in rows)
        Results(RESULTS.run, early).to_json(document.parent / "results" / "r.json")
        renew(document)
        text = document.read_text()
        assert f"| square | {ratio:.3f}*, worst {ratio:.2f}* |" in text
        assert f"| 1024 x 1024 x 1024 | {ratio:.2f}* |  |" in text

    def test_an_indented_block_is_an_example(self, document):
        example = "    <!-- results: table missing.json -->\n    <!-- end of results -->\n"
        document.write_text(example + self.DOCUMENT)
        renew(document)
        assert document.read_text().startswith(example)

    def test_a_document_without_blocks(self, document):
        document.write_text("nothing")
        with pytest.raises(ValueError, match="has no comment"):
            renew(document)
