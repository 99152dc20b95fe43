"""The cell magic %%sgemm in a real Jupyter kernel."""

import re
from pathlib import Path

import pytest

import sgemm_kernels as sk
from sgemm_kernels.learning.level import level_of

from .support import printed_by

pytestmark = [pytest.mark.packaging, pytest.mark.usefixtures("custom_cache")]

BARRIER = "        __syncthreads(); // the tiles are complete\n"
TILE2D = sk.source("tile2d")


class Notebook:
    """Runs cells."""

    def __init__(self, folder):
        from jupyter_client.manager import KernelManager

        # With TCP, the default, a kernel warns that others can listen.
        self.manager = KernelManager(transport="ipc", ip=f"{folder}/kernel")
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code):
        """Returns a cell's reply, what it printed and showed as text, and all that it showed."""
        shown = []
        reply = self.client.execute_interactive(
            code, timeout=200, output_hook=lambda message: shown.append(message["content"])
        )
        texts = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in shown]
        data = [each["data"] for each in shown if "data" in each]
        return reply["content"], "\n".join(texts), data

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory, custom_cache):
    notebook = Notebook(tmp_path_factory.mktemp("jupyter"))
    yield notebook
    notebook.end()


@pytest.fixture
def notebook(running):
    """Reloads the extension, as if no cell had run before."""
    reply, _, _ = running.run("%reload_ext sgemm_kernels")
    assert reply["status"] == "ok"
    return running


@pytest.mark.parametrize("name", ["naive", "cublas-tf32", "my-kernel", "print"])
def test_an_invalid_kernel_name_is_refused(notebook, name):
    _, said, _ = notebook.run(f"%%sgemm {name} --like naive\n{sk.source('naive')}")
    assert f"{name!r}" in said
    assert "use another kernel name, such as %%sgemm mine" in said
    assert "name=" not in said


def test_the_package_imports_without_ipython():
    script = """
        import sys
        sys.modules["IPython"] = None
        import sgemm_kernels
        from sgemm_kernels import __main__
        from sgemm_kernels.cli import notebook
        print(callable(sgemm_kernels.load_ipython_extension))
    """
    assert printed_by(script) == "True"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_an_empty_cell_is_filled_with_a_rungs_source(notebook, ending):
    reply, said, _ = notebook.run(f"%%sgemm mine --like tile2d{ending}")
    (payload,) = reply["payload"]
    assert payload["source"] == "set_next_input"
    assert payload["replace"] is True
    assert payload["text"] == f"%%sgemm mine --like tile2d\n{TILE2D}"
    assert "Filled the cell with the source of tile2d" in said


def test_a_correct_cell_defines_a_kernel(notebook):
    reply, said, shown = notebook.run(f"%%sgemm mine --like tile2d --device cpu\n{TILE2D}")
    assert reply["status"] == "ok"
    assert "mine is correct: " in said
    assert "Source: identical to tile2d." in said
    assert all("text/html" in data for data in shown)
    _, said, _ = notebook.run(
        "import numpy as np, sgemm_kernels\n"
        "A = np.ones((3, 2), np.float32)\n"
        "print(sgemm_kernels.run(mine, A, A.T, device='cpu').sum())"
    )
    assert said.strip() == "18.0"


def test_a_plain_kernel_runs_with_its_grid_and_block(notebook):
    text = (Path(__file__).parent / "plain/guarded.cu").read_text()
    cell = f'%%sgemm mine --device cpu --grid "(N/16, M/16)" --block "(16, 16)"\n{text}'
    reply, said, _ = notebook.run(cell)
    assert reply["status"] == "ok", said
    assert "mine is correct: " in said
    line, code = re.search(r"mine\.cu:(\d+): bank conflict: .*\n +\1 \| (.+)", said).groups()
    assert cell.splitlines()[int(line) - 1] == code


def test_a_missing_barrier_is_reported_with_its_line_in_the_cell(notebook):
    text = TILE2D.replace(BARRIER, "")
    cell = f"%%sgemm mine --like tile2d --device cpu\n{text}"
    reply, said, shown = notebook.run(cell)
    assert reply["status"] == "ok"
    assert "mine is WRONG:" in said
    line, code = re.search(r"mine\.cu:(\d+): race: .*\n +\1 \| (.+)", said).groups()
    assert cell.splitlines()[int(line) - 1] == code
    assert "a[i] = As[i];" in code
    removed = TILE2D.splitlines().index(BARRIER.rstrip()) + 2  # the cell's first line is the magic
    assert re.search(rf"- +{removed}          __syncthreads\(\);", said)
    assert "<pre>" in shown[0]["text/html"]


def test_a_run_is_compared_with_the_previous_one(notebook):
    options = "--like tile2d --bench 32 --against naive cublas --trace --device cpu"
    notebook.run(f"%%sgemm mine {options}\n{TILE2D}")
    changed = TILE2D.replace("TM = 8", "TM = 4")
    reply, said, shown = notebook.run(f"%%sgemm mine {options}\n{changed}")
    assert reply["status"] == "ok"
    assert "Source: lines changed since the last run:" in said
    (own,) = re.findall(r"^mine +32 .*$", said, re.MULTILINE)
    assert re.search(r"(faster|slower|same|unsure), time [+-]\d", own)
    (before,) = re.findall(r"^mine, last run +(\S+)", said, re.MULTILINE)
    (after,) = re.findall(r"^mine +(\d\.\d+) +\S+ +\S+$", said, re.MULTILINE)
    assert float(after) > float(before)
    assert "cublas: does not run on cpu" in said
    assert sum("image/png" in data for data in shown) == 1


def test_cells_with_different_names_do_not_interfere(notebook):
    notebook.run(f"%%sgemm one --like tile2d --trace\n{TILE2D}")
    _, said, _ = notebook.run(f"%%sgemm other --like tile2d --trace\n{TILE2D}")
    assert "last run" not in said


def test_a_compile_error_has_the_line_numbers_of_the_cell(notebook):
    cell = f"%%sgemm mine --like tile2d\n{TILE2D.replace('float sum[TM]', 'floot sum[TM]')}"
    reply, said, _ = notebook.run(cell)
    assert reply["status"] == "error"
    line = int(re.search(r"mine\.cu:(\d+):5: error: ", said)[1])
    assert cell.splitlines()[line - 1].startswith("    floot sum")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("", "NAME"),
        ("mine --bnch", "--bnch"),
        ("mine --bench ten", "use N, MxNxK or BATCHxMxNxK"),
        ("mine --like tile3d", "no source of 'tile3d'"),
        ("mine --against blas", "unknown variant 'blas'"),
        ("tile2d", "the ladder has a 'tile2d' already"),
        ("mi-ne", "letters, digits and _"),
        ("'mine", "quotation"),
    ],
)
def test_an_invalid_magic_line_is_refused_with_a_message(notebook, line, fact):
    reply, said, _ = notebook.run(f"%%sgemm {line}\n{TILE2D}")
    assert reply["status"] == "error"
    assert fact in said
    assert "Traceback" not in said


def test_an_empty_cell_without_like_is_refused(notebook):
    reply, said, _ = notebook.run("%%sgemm mine")
    assert reply["status"] == "error"
    assert "--like tile2d" in said


def test_without_matplotlib_accesses_are_shown_as_a_table(notebook):
    notebook.run("import sys; sys.modules['sgemm_kernels.explaining.trace_picture'] = None")
    _, said, _ = notebook.run(f"%%sgemm mine --like tile2d --trace\n{TILE2D}")
    notebook.run("del sys.modules['sgemm_kernels.explaining.trace_picture']")
    assert "The same data as a table" in said
    assert "load As (shared)" in said


@pytest.fixture
def in_a_folder(notebook, tmp_path):
    """The notebook, with a current folder of its own for the levels' files."""
    notebook.run(f"import os; before = os.getcwd(); os.chdir({str(tmp_path)!r})")
    yield notebook
    notebook.run("os.chdir(before)")


def test_an_empty_cell_is_filled_with_the_start_of_a_level(in_a_folder):
    reply, said, _ = in_a_folder.run("%%sgemm level 5")
    assert reply["status"] == "ok", said
    (payload,) = reply["payload"]
    assert payload["text"] == f"%%sgemm level 5\n{level_of(5).start}"
    assert "Filled the cell with the start of level 5" in said


def test_a_cell_is_judged_as_a_solution_of_a_level(in_a_folder):
    solution = level_of(1).solution
    cell = f"%%sgemm level 1\n{solution.replace('k < K', 'k <= K')}"
    reply, said, shown = in_a_folder.run(cell)
    assert reply["status"] == "ok"
    assert "Not yet. Level 1" in said
    line = re.search(r"index\.cu:(\d+): out of bounds", said)[1]
    assert "sum += A[" in cell.splitlines()[int(line) - 1]
    assert all("text/html" in data for data in shown)
    _, said, shown = in_a_folder.run(f"%%sgemm level 1\n{solution}")
    assert "PASSED. Level 1" in said
    assert "1 of" in shown[0]["text/html"]
    _, said, _ = in_a_folder.run("import sgemm_kernels\nsgemm_kernels.learn()")
    assert "Level 2 of" in said


def test_hints_and_the_solution_of_a_level(in_a_folder):
    _, said, _ = in_a_folder.run("%%sgemm level 5 hint")
    assert level_of(5).hints[0] in said
    _, said, _ = in_a_folder.run("%%sgemm level 5 solution")
    assert level_of(5).solution in said


@pytest.mark.parametrize(
    ("line", "fact"), [("level 99", "no level '99'"), ("level 1 help", "takes hint, solution")]
)
def test_a_mistake_in_the_line_of_a_level_is_named(in_a_folder, line, fact):
    reply, said, _ = in_a_folder.run(f"%%sgemm {line}\n")
    assert reply["status"] == "error"
    assert fact in said
    assert "Traceback" not in said
