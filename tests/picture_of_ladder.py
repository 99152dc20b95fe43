"""Draws docs/ladder-light.png and -dark.png from the ladder's page, the one that `make site` makes.

``python -m tests.picture_of_ladder`` needs Chromium and pillow, which matplotlib installs.
"""

import io
import tempfile
from pathlib import Path

from PIL import Image

from sgemm_kernels.explaining.pages import save_ladder

from .browser import Page

WIDTH = 1240
TO = Path(__file__).parent.parent / "docs"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_ladder(folder)
        page = Page()
        try:
            for name in ("light", "dark"):
                page.open(Path(folder) / "index.html", width=WIDTH, dark=name == "dark")
                picture = Image.open(io.BytesIO(page.picture(whole=True))).convert("RGB")
                few = picture.quantize(64, dither=Image.Dither.NONE)
                few.save(TO / f"ladder-{name}.png", optimize=True)
                print(TO / f"ladder-{name}.png")
        finally:
            page.close()


if __name__ == "__main__":
    main()
