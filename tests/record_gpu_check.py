"""The results of `make gpu-check` as JSON: python tests/record_gpu_check.py FOLDER

FOLDER holds pytest's reports, *.xml, and sanitize.txt, the output of `make gpu-sanitize`.
"""

import datetime
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

from sgemm_kernels import build_info, devices


def suite_of(reports: list[Path]) -> dict[str, int | float]:
    """Pytest's counts and the total seconds of its processes."""
    suites = [next(ElementTree.parse(report).iter("testsuite")).attrib for report in reports]
    names = ("tests", "failures", "errors", "skipped")
    counts = {name: sum(int(suite[name]) for suite in suites) for name in names}
    return {**counts, "seconds": round(sum(float(suite["time"]) for suite in suites), 1)}


def main() -> None:
    folder = Path(sys.argv[1])
    gpu = next(device for device in devices() if device.kind != "cpu" and device.usable)
    build = build_info()
    sanitize = (folder / "sanitize.txt").read_text(encoding="utf-8")
    record = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.model,
        f"driver_serves_{gpu.kind}": gpu.driver,
        **({"hip": build.hip} if build.hip else {"cuda_toolkit": build.cuda_toolkit}),
        "csrc_hash": build.csrc_hash,
        "pytest": suite_of(sorted(folder.glob("*.xml"))),
        "compute_sanitizer": {
            "summaries": re.findall(r"= ((?:ERROR|RACECHECK) SUMMARY: .*)", sanitize),
            "planted_bugs_found": re.findall(r"planted bug found: (.*)", sanitize),
        },
    }
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
