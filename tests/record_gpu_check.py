"""The results of `make gpu-check` as JSON: python tests/record_gpu_check.py FOLDER

FOLDER holds pytest's reports, *.xml, and sanitize.txt, the output of `make gpu-sanitize`. The exit
status is 1 if a test failed, or if a file of tests has no report.
"""

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sgemm_kernels import build_info, devices


def suite_of(reports: list[Path]) -> dict[str, Any]:
    """Pytest's counts, the total seconds of its processes, and what failed."""
    suites = [next(ElementTree.parse(report).iter("testsuite")) for report in reports]
    names = ("tests", "failures", "errors", "skipped")
    counts = {name: sum(int(suite.attrib[name]) for suite in suites) for name in names}
    seconds = round(sum(float(suite.attrib["time"]) for suite in suites), 1)
    cases = [case for suite in suites for case in suite.iter("testcase")]
    failed = [
        f"{case.attrib['classname']}::{case.attrib['name']}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return {**counts, "seconds": seconds, **({"failed": failed} if failed else {})}


def main() -> int:
    folder = Path(sys.argv[1])
    gpu = next(device for device in devices() if device.kind != "cpu" and device.usable)
    build = build_info()
    reports = sorted(folder.glob("*.xml"))
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    missing = sorted(tests - {report.stem for report in reports})
    sanitize = (folder / "sanitize.txt").read_text(encoding="utf-8")
    record = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.model,
        f"driver_serves_{gpu.kind}": gpu.driver,
        **({"hip": build.hip} if build.hip else {"cuda_toolkit": build.cuda_toolkit}),
        "csrc_hash": build.csrc_hash,
        "pytest": suite_of(reports) | ({"without_report": missing} if missing else {}),
        "compute_sanitizer": {
            "summaries": re.findall(r"= ((?:ERROR|RACECHECK) SUMMARY: .*)", sanitize),
            "planted_bugs_found": re.findall(r"planted bug found: (.*)", sanitize),
        },
    }
    print(json.dumps(record, indent=1))
    return 1 if missing or "failed" in record["pytest"] else 0


if __name__ == "__main__":
    sys.exit(main())
