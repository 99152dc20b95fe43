"""The command that looks into kernels: explain."""

import argparse
from pathlib import Path

from ..custom.kernel import kernel
from ..explaining.pages import explain, save_ladder
from .command import Command, refuse_unwritable, show


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variants",
        metavar="VARIANT",
        nargs="*",
        help="one name from 'list', or two; or the file of a kernel of your own, as mine.cu",
    )
    parser.add_argument("--all", action="store_true", help="all rungs, in a folder of pages")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE.html",
        type=Path,
        required=True,
        help="the page, or for --all the folder",
    )


def _explain(options: argparse.Namespace) -> int:
    if options.all == bool(options.variants) or len(options.variants) > 2:
        raise ValueError("explain takes one variant, or two, or --all")
    if options.all:
        save_ladder(options.output)
        show(f"{options.output / 'index.html'}: the ladder, and beside it a page for each rung")
    else:
        refuse_unwritable(options.output)
        kernels = (kernel(name) if name.endswith(".cu") else name for name in options.variants)
        explain(*kernels).save(options.output)
        show(f"{options.output}: what limits {' and '.join(options.variants)}")
    return 0


COMMANDS = (
    Command(
        "explain",
        "write a page that says what limits a kernel",
        "Counts what each line of a kernel asks of a GPU, on any machine, and writes a page with "
        "the unit that it fills, what it gained and why; or a page with two kernels.",
        "vec4 -o vec4.html",
        _explain,
        _explain_arguments,
    ),
)
