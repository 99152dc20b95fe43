"""After a call, workers watch for more work no longer than the usual time between calls."""

import subprocess
from pathlib import Path

CSRC = Path(__file__).parent.parent / "csrc"

# The program prints how often one worker looks for work in a pause: after the first job, then on
# average in long pauses, and then in short ones. A worker yields at each look.
PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>

#include "base/threads.h"
#include "runtime/workers.h"

static long looks;

int sched_yield(void)
{
    __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
    return 0;
}

static void nothing(const Strided *to, const Strided *from)
{
    (void)to, (void)from;
}

static long looks_in_pause(int microseconds)
{
    Job job = {.copy = nothing};
    workers_add(&job);
    while (!__atomic_load_n(&job.done, __ATOMIC_ACQUIRE)) {
        usleep(100);
    }
    const long before = __atomic_load_n(&looks, __ATOMIC_RELAXED);
    usleep(microseconds);
    return __atomic_load_n(&looks, __ATOMIC_RELAXED) - before;
}

int main(void)
{
    usable_cores_set(2, 0); /* one worker */
    const long first = looks_in_pause(20000);
    long far_apart = 0, close = 0;
    for (int call = 0; call < 20; ++call) {
        far_apart += looks_in_pause(20000) / 20;
    }
    for (int call = 0; call < 20; ++call) {
        close += looks_in_pause(1000) / 20;
    }
    printf("%ld %ld %ld\n", first, far_apart, close);
    return 0;
}
"""


def test_workers_watch_as_long_as_pauses_between_calls(tmp_path):
    source, program = tmp_path / "looks.c", tmp_path / "looks"
    source.write_text(PROGRAM)
    base = [CSRC / f"base/{name}.c" for name in ("threads", "undisturbed", "status")]
    sources = [source, *base, CSRC / "runtime/workers.c", CSRC / "runtime/strided.c"]
    command = ["cc", "-O2", "-D_DEFAULT_SOURCE", f"-I{CSRC}", "-o", program, *sources]
    subprocess.run([*command, "-lpthread"], check=True)
    seen = []
    for _ in range(8):  # on a busy machine the worker may not get its core
        first, far_apart, close = map(int, subprocess.check_output([program], text=True).split())
        seen.append((first, far_apart, close))
        if far_apart * 5 < min(first, close):
            return
    raise AssertionError(seen)
