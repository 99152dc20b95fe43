"""The API reference: ``make docs``. What is there is written in the docstrings of the package."""

import argparse

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import sgemm_kernels
from sgemm_kernels.__main__ import COMMANDS

project = "sgemm_kernels"
version = release = sgemm_kernels.__version__
author = "the sgemm_kernels authors"
extensions = ["sphinx.ext.autodoc", "numpydoc"]
html_theme = "alabaster"
html_theme_options = {"description": "Matrix products by every kernel of one ladder"}
html_copy_source = False

toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False

# Every function says what it takes, gives and raises, in one form. What a class is made of stands
# beside its fields.
numpydoc_validation_checks = {"PR01", "PR02", "PR03", "RT01", "RT03", "SS01"}
numpydoc_validation_exclude = {r"\.[A-Z]\w*$"}

# Every reference to something public of this package must lead there.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!sgemm_kernels).*|sgemm_kernels\._.*"),
    ("py:class", r"sgemm_kernels\.custom\.compiler\.Source"),  # only `kernel` constructs a Kernel
]


class CommandLine(Directive):
    """The help of every command, as the shell prints it."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for command in COMMANDS:
            parser = argparse.ArgumentParser(
                prog=f"sgemm-kernels {command.name}",
                description=command.description or f"{command.help[0].upper()}{command.help[1:]}.",
                epilog=command.epilog,
                formatter_class=lambda prog: argparse.HelpFormatter(prog, width=72),
            )
            command.arguments(parser)
            parser.usage = command.usage and f"sgemm-kernels {command.name} {command.usage}"
            section = nodes.section(ids=[f"command-{command.name}"])
            text = parser.format_help()
            section += nodes.title(text=command.name)
            section += nodes.literal_block(text, text, language="none")
            found.append(section)
        return found


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
