"""How often `check` and `sanitize` find mistakes: python -m tests.judge_rates

It makes every mistake of mutants/mutants.toml in up to two rungs that have the place, judges each
result, and writes mutants/results.json and the tables of docs/use/judge.md. ``--draw`` writes the
tables again from the results. ``--go-on`` judges only mutants without a result. A full run takes
about an hour on two cores; a name or a rung limits it, and then nothing is written.
"""

import argparse
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sgemm_kernels as sk
from sgemm_kernels._catalog import kernel_file
from sgemm_kernels._launches import launch_keywords
from sgemm_kernels.custom import sanitize
from sgemm_kernels.custom.cases import tile_of
from sgemm_kernels.custom.child_process import become_child
from sgemm_kernels.custom.compiler import CompileError, library, sanitizer_build
from sgemm_kernels.custom.diagnosis import Diagnosis, Finding
from sgemm_kernels.custom.failures import finding_of, placed

from .mutation import LOOPS

FOLDER = Path(__file__).parent / "mutants"
PAGE = Path(__file__).parent.parent / "docs/use/judge.md"
LADDER = [v.name for v in sk.variants() if v.file is not None]
FIRST_OF_LATER = "async"
LAUNCH = "// Launch: "
"""A plain rung says there how it is launched."""
NEAR = 2
"""A finding names the changed line if it is at most this many lines away."""
SECONDS = 20
MOST_RUNGS = 2
"""In how many rungs a mistake is made, in turns."""


@dataclass(frozen=True)
class Mutant:
    """A rung with one mistake, and what the first finding about it must say."""

    rung: str
    name: str
    place: int
    """Which of the rung's places with mistakes of this name, from 1 on."""
    text: str
    line: int
    kinds: Sequence[str]
    lines: str
    launch: Mapping[str, str]
    """What is wrong in the launch of a plain kernel."""

    @property
    def key(self) -> str:
        return f"{self.rung}, place {self.place}: {self.name}"

    @property
    def later(self) -> bool:
        return LADDER.index(self.rung) >= LADDER.index(FIRST_OF_LATER)

    @property
    def file(self) -> str:
        return f"mutant_of_{self.rung}.cu"

    def kernel(self) -> sk.Kernel:
        name = self.file.removesuffix(".cu")
        launch = launch_keywords(self.rung) | self.launch
        return sk.kernel(self.text, name=name, **launch)


def with_loop(rung: str) -> str:
    """The text of a rung, with that of the header that has its main loop."""
    text, header = sk.source(rung), LOOPS.get(rung)
    return text.replace(f'#include "{header}"\n', kernel_file(header)) if header else text


def mutants() -> list[Mutant]:
    """All mutants, rung by rung."""
    mutations = tomllib.loads((FOLDER / "mutants.toml").read_text(encoding="utf-8"))["mutation"]
    texts = {rung: with_loop(rung) for rung in LADDER}
    found: list[Mutant] = []
    before = Counter[tuple[str, str]]()
    for index, mutation in enumerate(mutations):
        changed = mutation.get("old", LAUNCH)
        of = [r for r in mutation.get("rungs", LADDER) if changed in texts[r]]
        turned = of[index % len(of) :] + of[: index % len(of)]
        for rung in turned[:MOST_RUNGS]:
            found += _places(rung, texts[rung], mutation, before[rung, mutation["name"]])
            before[rung, mutation["name"]] += texts[rung].count(changed)
    return sorted(found, key=lambda mutant: (LADDER.index(mutant.rung), mutant.line))


def _places(rung: str, text: str, mutation: dict[str, Any], before: int) -> Iterator[Mutant]:
    old, new = mutation.get("old", LAUNCH), mutation.get("new", LAUNCH)
    launch = mutation.get("launch", {})
    for number, place in enumerate(re.finditer(re.escape(old), text), before + 1):
        changed = text[: place.start()] + new + text[place.end() :]
        indent = len(old) - len(old.lstrip("\n"))
        line = text.count("\n", 0, place.start() + indent) + 1
        kinds, lines = mutation["kinds"], mutation["lines"]
        yield Mutant(rung, mutation["name"], number, changed, line, kinds, lines, launch)


def first_of(verdicts: Iterable[Diagnosis]) -> Finding | None:
    """The first finding that counts: sanitize's, or check's if sanitize has none."""
    wrong = [f for verdict in verdicts for f in verdict.findings if not f.harmless]
    return wrong[0] if wrong else None


def verdict_of(mutant: Mutant, finding: Finding | None) -> str:
    """'right', 'wrong' or 'missed'."""
    if finding is None:
        return "missed"
    if finding.kind not in mutant.kinds:
        return "wrong"
    if not mutant.lines:
        return "right"
    if finding.line is None or finding.file != mutant.file:
        return "wrong"
    near = abs(finding.line - mutant.line) <= NEAR
    named = mutant.text.splitlines()[finding.line - 1]
    return "right" if near or re.search(mutant.lines, named) else "wrong"


def watched(mutant: Mutant) -> Finding | None:
    """The first finding of the first part of ``sanitize``."""
    source = mutant.kernel().made_of
    tile = tile_of(next(v for v in sk.variants() if v.name == mutant.rung))
    try:
        program, _ = library(source, sanitizer_build())
    except CompileError as error:
        return finding_of(error, source, SECONDS)
    _, findings = sanitize.watch(program, tile, source, SECONDS)
    if sanitize.looks_unset(findings):
        findings += sanitize.unset_variables(source, tile, SECONDS)
    found = sanitize.in_order(findings)
    return placed(found[0], source) if found else None


def judged(mutant: Mutant) -> dict[str, Any]:
    """The record of one mutant. The first program that ``sanitize`` runs finds most mistakes, and
    then the other programs need not be compiled."""
    finding = watched(mutant)
    if finding is None:
        kernel = mutant.kernel()
        verdicts = [kernel.sanitize(seconds=SECONDS)]
        if verdicts[0].passed:
            verdicts.append(kernel.check(device="cpu", seconds=SECONDS))
        finding = first_of(verdicts)
    return {
        "mutant": mutant.key,
        "later": mutant.later,
        "name": mutant.name,
        "verdict": verdict_of(mutant, finding),
        "finding": "" if finding is None else str(finding)[:160],
    }


# ------------------------------------------------------------------ the tables


def rates(records: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of the table of rates."""
    rows = ["| rungs | mutants | right name and line | wrong name or line | missed |"]
    rows += ["|---|---|---|---|---|"]
    for text, later in (
        (f"up to `{LADDER[LADDER.index(FIRST_OF_LATER) - 1]}`", False),
        (f"from `{FIRST_OF_LATER}` on", True),
    ):
        part = [r["verdict"] for r in records if r["later"] == later]
        cells = [f"{100 * part.count(v) / len(part):.1f} %" for v in ("right", "wrong", "missed")]
        rows.append(f"| {text} | {len(part)} | {' | '.join(cells)} |")
    return rows


def kinds(records: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of the table of mistakes."""
    rows = ["| mistake | mutants | right | wrong | missed |", "|---|---|---|---|---|"]
    for name in sorted({r["name"] for r in records}):
        part = [r["verdict"] for r in records if r["name"] == name]
        cells = [str(part.count(v) or "") for v in ("right", "wrong", "missed")]
        rows.append(f"| {name} | {len(part)} | {' | '.join(cells)} |")
    return rows


def with_tables(page: str, records: Sequence[dict[str, Any]]) -> str:
    """The page with new tables between its markers."""
    for name, rows in (("rates", rates(records)), ("kinds", kinds(records))):
        begin, end = f"<!-- judge: {name} -->\n", f"<!-- end: {name} -->"
        head, rest = page.split(begin)
        page = head + begin + "\n".join(rows) + "\n" + end + rest.split(end, 1)[1]
    return page


def recorded() -> list[dict[str, Any]]:
    """The records of the last full run."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    return found


def write(records: Sequence[dict[str, Any]]) -> None:
    """Writes the results in the order of the mutants, and the tables of the page."""
    order = {mutant.key: index for index, mutant in enumerate(mutants())}
    kept = sorted((r for r in records if r["mutant"] in order), key=lambda r: order[r["mutant"]])
    text = ",\n".join(json.dumps(record) for record in kept)
    (FOLDER / "results.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), kept), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="?", default="", help="a rung or a part of a mistake's name")
    parser.add_argument("--go-on", action="store_true", help="judge mutants without a result")
    parser.add_argument("--draw", action="store_true", help="write the tables again")
    options = parser.parse_args()
    # Most kernels that ``check`` runs have passed ``sanitize``: no other process is needed.
    become_child()
    records = recorded() if options.go_on or options.draw else []
    known = {record["mutant"] for record in records}
    for mutant in mutants():
        if options.draw or mutant.key in known or options.which not in mutant.key:
            continue
        records.append(judged(mutant))
        last = records[-1]
        print(f"{last['verdict']:6} {last['mutant']}: {last['finding']}", flush=True)
        if not options.which:
            write(records)
    if not options.which:
        write(records)


if __name__ == "__main__":
    main()
