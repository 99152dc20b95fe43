"""Seven ideas for tensor cores, each alternating with a baseline in one run.

``python benchmarks/ablations_fp16_pairs.py`` is ``ablations.py`` with the questions of
``_questions_fp16_pairs.py``. The products are machine code for compute capability 9.0 only.
"""

from __future__ import annotations

from _questions_fp16_pairs import QUESTIONS
from _results import output_argument, write
from ablations import print_found, run


def main() -> None:
    arguments = output_argument(__doc__.splitlines()[0], "ablations_fp16_pairs").parse_args()
    document, rows = run(QUESTIONS)
    print_found(QUESTIONS, document, rows)
    write(arguments.output, "ablations_fp16_pairs", document, rows)


if __name__ == "__main__":
    main()
