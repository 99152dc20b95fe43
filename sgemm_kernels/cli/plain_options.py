"""The options that launch a plain CUDA kernel, for ``try``, ``tune`` and ``%%sgemm``."""

import argparse
from typing import Any


def plain_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a plain kernel's launch."""
    group = parser.add_argument_group("a plain CUDA kernel")
    group.add_argument(
        "--grid",
        metavar="EXPR",
        help='its grid, x first, of M, N, K and the file\'s constants: "(N/32, M/32)"; / rounds up',
    )
    group.add_argument("--block", metavar="EXPR", help='its block: "(32, 32)"')
    group.add_argument(
        "--shared", metavar="EXPR", help="bytes of dynamic shared memory (default: 0)"
    )
    group.add_argument(
        "--function",
        metavar="NAME",
        help='the __global__ function, if there are several or for a template: "sgemm<64, 64>"',
    )
    group.add_argument(
        "--argument",
        metavar="NAME=VALUE",
        type=_argument,
        action="append",
        help="what a parameter gets: A, B, C, A.T, B.T, C.T, None, alpha, beta, or an expression",
    )
    group.add_argument(
        "--multiple-of", metavar="SIZES", help='M, N and K must be multiples of it: "(128, 128, 8)"'
    )
    group.add_argument("--tile", metavar="SIZES", help="BM, BN, BK, if the grid does not tell them")


def _argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as ld=K")
    return name.strip(), value.strip()


def plain_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``kernel`` that these options set."""
    keywords = {
        "grid": options.grid,
        "block": options.block,
        "shared": options.shared,
        "function": options.function,
        "arguments": dict(options.argument or ()),
        "multiple_of": options.multiple_of,
        "tile": options.tile,
    }
    return {name: value for name, value in keywords.items() if value}
