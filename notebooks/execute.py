"""Executes the lessons of this folder in place: ``make notebooks``.

Removes everything that differs from one execution to the next by chance, so that each difference
in the files is a difference in the results. The exceptions are cells with the tag 'live', which
measure this machine.
"""

import base64
import io
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image
from traitlets.config import Config

HERE = Path(__file__).parent


def execute(path: Path) -> nbformat.NotebookNode:
    """Executes the cells of a notebook in order, in its own folder, and returns it.

    Raises nbclient.exceptions.CellExecutionError if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # By default a kernel uses TCP, and warns that others could listen.
        local = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": path.parent}},
            record_timing=False,
            timeout=900,
            config=Config(KernelManager=local),
        ).execute()
    # The kernel records its version; remove it.
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", ()):
                output.data["image/png"] = smaller(output.data["image/png"])
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Merges consecutive pieces of printed text, which arrive divided by chance."""
    whole: list[nbformat.NotebookNode] = []
    for output in outputs:
        if whole and output.output_type == "stream" and output.get("name") == whole[-1].get("name"):
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def smaller(png: str) -> str:
    """Reduces a base64 PNG to 32 colours, which takes a fifth of the bytes."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    palette = picture.quantize(32, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    palette.save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    for path in sorted(HERE.glob("*.ipynb")):
        nbformat.write(execute(path), path)
        print(path.name)


if __name__ == "__main__":
    main()
