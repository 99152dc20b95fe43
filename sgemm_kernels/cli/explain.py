"""The command that explains kernels: explain."""

import argparse
from pathlib import Path

from ..custom.load import kernel
from ..explaining.pages import explain, save_ladder
from .command import Command, refuse_unwritable, show


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "variants",
        metavar="VARIANT",
        nargs="*",
        help="one or two names from 'list', or files of custom kernels, such as mine.cu",
    )
    parser.add_argument(
        "--like", metavar="RUNG", help="the rung that the custom kernels started from"
    )
    parser.add_argument("--all", action="store_true", help="all rungs, as a folder of pages")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE.html",
        type=Path,
        required=True,
        help="the page to write; the folder for --all",
    )


def _explain(options: argparse.Namespace) -> int:
    if options.all == bool(options.variants) or len(options.variants) > 2:
        raise ValueError("explain needs one variant, two variants, or --all")
    if options.all:
        save_ladder(options.output)
        show(f"{options.output / 'index.html'}: the ladder, with links to a page for each rung")
    else:
        refuse_unwritable(options.output)
        kernels = (
            kernel(name, like=options.like) if name.endswith(".cu") else name
            for name in options.variants
        )
        explain(*kernels).save(options.output)
        show(f"{options.output}: the bottleneck of {' and '.join(options.variants)}")
    return 0


COMMANDS = (
    Command(
        "explain",
        "write a page about a kernel's bottleneck",
        "Counts the memory accesses of each line of a kernel, on any machine, and writes a page "
        "about its bottleneck and its gain over the rung before. With two variants, the page "
        "compares them.",
        "vec4 -o vec4.html",
        _explain,
        _explain_arguments,
    ),
)
