"""Rungs as single files: the pruner, the text, the command, and compilation by nvcc."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sgemm_kernels as sk
from sgemm_kernels.__main__ import main
from sgemm_kernels._launches import launches
from sgemm_kernels.custom.preprocessor import pruned
from sgemm_kernels.custom.standalone import DEFINED
from sgemm_kernels.measuring.probe import find_nvcc

RUNGS = [entry.name for entry in sk.variants() if entry.file is not None]

# ------------------------------------------------------------------ the pruner

MADE_UP = {"YES": True, "NO": False}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n#ifdef YES\nb\n#else\nc\n#endif\nd\n", "a\nb\nd\n"),
        ("#ifdef NO\nb\n#else /* of NO */\nc\n#endif /* NO */\n", "c\n"),
        ("#ifndef NO\nb\n#endif\n", "b\n"),
        ("#ifndef YES\nb\n#endif\n", ""),
        ("#if defined(NO)\nb\n#elif defined(YES)\nc\n#elif OTHER\nd\n#else\ne\n#endif\n", "c\n"),
        ("#  if !defined NO && (defined(YES) || OTHER) // why\nb\n#endif\n", "b\n"),
        ("#if defined(NO) && OTHER > 3\nb\n#endif\n", ""),
        ("#if defined(YES) \\\n    && !defined(NO)\nb\n#endif\n", "b\n"),
        # A condition on other macros stays, with its remaining branches.
        ("#ifdef OTHER\nb\n#elif !defined(YES)\nc\n#endif\n", "#ifdef OTHER\nb\n#endif\n"),
        (
            "#ifdef OTHER\nb\n#elif defined(YES)\nc\n#else\nd\n#endif\n",
            "#ifdef OTHER\nb\n#else\nc\n#endif\n",
        ),
        (
            "#ifdef NO\nb\n#elif OTHER >= 3\nc\n#else\nd\n#endif // end\n",
            "#if OTHER >= 3\nc\n#else\nd\n#endif // end\n",
        ),
        ("#if OTHER && (A + 1) * B(2, 3) > 4\nb\n#endif\n",) * 2,
        ("#ifdef OTHER\n#ifdef NO\nb\n#else\nc\n#endif\n#endif\n", "#ifdef OTHER\nc\n#endif\n"),
        ("#ifdef NO\n#ifdef OTHER\nb\n#else\nc\n#endif\n#else\nd\n#endif\n", "d\n"),
        ("#ifdef YES\na\n#else\n#if OTHER\nb\n#endif\n#endif\nc", "a\nc"),
        ("#define A(x) \\\n#x\n#include <b>\n",) * 2,
    ],
)
def test_prunes(text, left):
    assert pruned(text, MADE_UP) == left


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#if defined(YES) && OTHER\n#endif\n", "other macros decide this: #if defined"),
        ("#if OTHER\na\n", "no #endif for #if OTHER"),
        ("#ifdef YES\na\n#else\nb\n", "no #endif after #else"),
        ("a\n#endif\n", "#endif without #if"),
        ("#if defined(YES))\n#endif\n", "unbalanced parentheses"),
    ],
)
def test_does_not_guess(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        pruned(text, MADE_UP)


# ------------------------------------------------------------------ the text


@pytest.mark.parametrize("name", RUNGS)
def test_the_text_needs_no_other_file(name):
    text = sk.source(name, standalone=True)
    assert text.isascii()
    assert '#include "' not in text
    assert not re.search(r"@[A-Z]+@", text)  # a placeholder of the template
    assert not [macro for macro in DEFINED if re.search(rf"^\s*#.*\b{macro}\b(?! >=)", text, re.M)]
    assert max(map(len, re.findall(r"^#include .*", text, re.M))) < 40
    includes = re.findall(r"^#include .*", text, re.M)
    assert len(includes) == len(set(includes))
    assert text.count("int main(") == 1
    kernel = sk.source(name)
    if name in launches():
        assert f"{name}<<<" in text
        assert kernel[kernel.index("constexpr") :] in text
    else:
        assert f"launch_{name}_cuda(&p, &where)" in text
        assert kernel.partition("namespace {")[2].partition("#if")[0] in text


def test_the_head_comment_has_the_command():
    assert "nvcc -O3 -arch=native vec4.cu -o vec4 && ./vec4 4096" in sk.source(
        "vec4", standalone=True
    )
    assert "nvcc -O3 -gencode arch=compute_90a,code=sm_90a waves.cu" in sk.source(
        "waves", standalone=True
    )


@pytest.mark.parametrize("name", ["simt", "auto", "cublas", "nothing"])
def test_only_a_rung_can_be_exported(name, capsys):
    with pytest.raises(ValueError, match=f"no standalone source of '{name}': the rungs are naive,"):
        sk.source(name, standalone=True)
    assert main(["export", name, "-o", "-"]) == 2
    assert "the rungs are naive," in capsys.readouterr().err


def test_exports_to_a_file_or_to_the_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = sk.source("tile2d", standalone=True)
    assert main(["export", "tile2d"]) == 0
    assert Path("tile2d.cu").read_text() == text
    assert "Wrote tile2d with a main to tile2d.cu" in capsys.readouterr().out
    assert main(["export", "tile2d", "-o", "-"]) == 0
    assert capsys.readouterr().out == text
    Path("tile2d.cu").write_text("changed")
    assert main(["export", "tile2d", "-o", "tile2d.cu"]) == 2
    assert "tile2d.cu already exists" in capsys.readouterr().err
    assert Path("tile2d.cu").read_text() == "changed"


# ------------------------------------------------------------------ nvcc


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The exit status and the output of nvcc for each rung's file."""
    try:
        nvcc = find_nvcc()
    except FileNotFoundError:
        pytest.skip("nvcc compiles the files")
    folder = tmp_path_factory.mktemp("standalone")

    def compile_one(rung, arch):
        file = folder / f"{rung}-{arch}.cu"
        file.write_text(sk.source(rung, standalone=True))
        gencode = f"arch={arch.replace('sm', 'compute')},code={arch}"
        command = [nvcc, "-gencode", gencode, "-c", file.name, "-o", f"{file.stem}.o"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    specific = {entry.name for entry in sk.variants() if entry.architecture_specific}
    jobs = [(rung, "sm_90a" if rung in specific else "sm_90") for rung in reversed(RUNGS)]
    jobs += [("waves", "sm_90"), ("tma", "sm_80")]
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return dict(zip(jobs, pool.map(lambda job: compile_one(*job), jobs), strict=True))


@pytest.mark.nvcc
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUNGS)
def test_nvcc_compiles(compiled, name):
    assert next(result for (rung, _), result in compiled.items() if rung == name) == (0, "")


@pytest.mark.nvcc
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "arch", "said"),
    [
        ("waves", "sm_90", "compile waves with -gencode arch=compute_90a,code=sm_90a"),
        ("tma", "sm_80", "compile tma with -arch=native, or with -arch=sm_90 or newer"),
    ],
)
def test_nvcc_refuses_a_gpu_without_the_instructions(compiled, name, arch, said):
    status, output = compiled[name, arch]
    assert status != 0
    assert said in output
