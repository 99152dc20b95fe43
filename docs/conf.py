"""The site that ``make docs`` builds: every Markdown page of the repository, and the API reference.

The source folder is the root of the repository, so links between pages work on the site as they do
in a checkout. A link to a file that is not a page becomes a download.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

import sgemm_kernels
from sgemm_kernels.__main__ import COMMANDS

project = "sgemm_kernels"
version = release = sgemm_kernels.__version__
author = "the sgemm_kernels authors"
extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "benchmarks/**.md", "csrc/**.md", "release/*.md"]
exclude_patterns = [".*", "build", "dist", "site", "**.egg-info"]
html_theme = "alabaster"
html_theme_options = {"description": "Float32 matrix products, by every kernel of one ladder"}
html_copy_source = False
highlight_language = "none"

myst_heading_anchors = 4  # GitHub's anchors

toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False
autodoc_mock_imports = ["jax"]  # only sgemm_kernels.jax needs it

# Docstrings of functions have one form: parameters, returned value, exceptions. A class documents
# its fields beside them.
numpydoc_validation_checks = {"PR01", "PR02", "PR03", "RT01", "RT03", "SS01"}
numpydoc_validation_exclude = {r"\.[A-Z]\w*$"}

# Every reference to a public name of this package must resolve.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!sgemm_kernels).*|sgemm_kernels\._.*"),
    ("py:class", r"sgemm_kernels\.custom\.kernel_source\.Source"),  # `kernel` makes it
    ("py:class", r"sgemm_kernels\.custom\.plain\.Plain"),  # its facts are for the package
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


def unlink_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Links to existing folders become text: a site has no page for a folder."""
    here = Path(app.srcdir, app.env.docname).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("reftype") == "myst" and (here / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def copy_pictures(app: Sphinx, failure: Exception | None) -> None:
    """Copies the pictures of HTML tags in pages, which Sphinx does not see."""
    if failure or app.builder.name != "html":
        return
    for page in app.env.found_docs:
        source = Path(app.env.doc2path(page))
        if source.suffix != ".md":
            continue
        for link in re.findall(r'\b(?:src|srcset)="([^"]+)"', source.read_text(encoding="utf-8")):
            picture = Path(os.path.normpath(source.parent / link)).relative_to(app.srcdir)
            if not (app.srcdir / picture).is_file():
                logging.getLogger(__name__).warning("no picture %s", link, location=page)
                continue
            copy = app.outdir / picture
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(app.srcdir / picture, copy)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
    app.connect("doctree-read", unlink_folders)
    app.connect("build-finished", copy_pictures)
