"""Executes the lessons of this folder in place: ``make notebooks``.

What differs from one execution to the next without reason is left out, so that a difference in the
files is one in the results. The exceptions are cells with the tag 'live': they used the machine.
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
    """The notebook, executed from its first cell to its last in its own folder.

    Raises nbclient.exceptions.CellExecutionError where a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Over TCP, which is the default, a kernel warns that others could listen.
        local = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": path.parent}},
            record_timing=False,
            timeout=900,
            config=Config(KernelManager=local),
        ).execute()
    # The kernel writes down its version.
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", ()):
                output.data["image/png"] = smaller(output.data["image/png"])
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with what was printed in one go in one piece; it arrives in pieces by chance."""
    whole: list[nbformat.NotebookNode] = []
    for output in outputs:
        if whole and output.output_type == "stream" and output.get("name") == whole[-1].get("name"):
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def smaller(png: str) -> str:
    """A picture with 32 colours, in a fifth of the bytes; both are in base64."""
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
