"""Draws docs/ladder-light.png and -dark.png from the ladder's page, the one that `make site` makes.

``make pictures`` runs it. It needs Chromium and pillow, which matplotlib installs.
"""

import io
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin

from sgemm_kernels import recorded_file, variants
from sgemm_kernels.explaining.pages import save_ladder
from sgemm_kernels.measuring.recorded import record_of
from sgemm_kernels.measuring.results_file import origin

from .browser import Page, find

WIDTH = 1240
TO = Path(__file__).parent.parent / "docs"
PICTURES = [TO / "ladder-light.png", TO / "ladder-dark.png"]


def shown() -> str:
    """The names and digests of the results that the page shows."""
    folder = record_of([variant.name for variant in variants()]).folder
    return origin(*(recorded_file(f"{folder}/{name}.json") for name in ("ladder", "traffic")))


def main() -> None:
    if find() is None:
        raise SystemExit("the picture of the ladder's page needs Chromium")
    with tempfile.TemporaryDirectory() as folder:
        save_ladder(folder)
        page = Page()
        try:
            for path in PICTURES:
                page.open(Path(folder) / "index.html", width=WIDTH, dark="dark" in path.stem)
                picture = Image.open(io.BytesIO(page.picture(whole=True))).convert("RGB")
                few = picture.quantize(64, dither=Image.Dither.NONE)
                about = PngImagePlugin.PngInfo()
                about.add_text("Source", shown())
                few.save(path, optimize=True, pnginfo=about)
                print(path)
        finally:
            page.close()


if __name__ == "__main__":
    main()
