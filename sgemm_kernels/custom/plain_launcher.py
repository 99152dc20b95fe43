"""The C++ text that a plain kernel is compiled as: its own text, and a generated launcher."""

import math

from . import plain_text
from .expressions import Expression
from .plain import Plain
from .plain_parameters import Parameter

_GPU_NAMES = """\
#ifdef __CUDACC_RTC__
#include <stdint.h>
#define INT_MAX 2147483647
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#else
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#endif
"""


def for_cpu(plain: Plain, device: str, file: str) -> str:
    """The launcher for the machine's C++ compiler. It includes the kernel's file."""
    headers = ["plain_device.h", "plain_tensor_cores.h"]
    if plain_text.includes_groups(device):
        headers.append("plain_groups.h")
    names = ["../custom/plain.h", *(f"../emulator/plain/{header}" for header in headers)]
    names += plain_text.package_headers(device)
    return "\n".join([*(f'#include "{name}"' for name in names), _rest(plain, file)])


def for_nvcc(plain: Plain, device: str, file: str) -> str:
    """The launcher for nvcc. It includes the kernel's file."""
    headers = [f"#include <{name}>" for name in plain_text.cuda_headers(device)]
    headers += [f'#include "{name}"' for name in plain_text.package_headers(device)]
    return "\n".join(['#include "../custom/plain.h"', _GPU_NAMES, *headers, _rest(plain, file)])


def for_nvrtc(device: str, file: str) -> str:
    """What NVRTC compiles: the device code alone, since the host launches it."""
    return f'{_GPU_NAMES}#line 1 "{file}"\n{device}'


def _rest(plain: Plain, file: str) -> str:
    facts = ", ".join(
        [
            f"{{{', '.join(map(str, plain.multiple_of))}}}",
            _flag(plain.square),
            _flag(plain.scales),
            _flag(plain.adds),
            _flag(plain.accumulates),
            _flag(plain.reads_C),
            f"{{{', '.join(_flag(f'{name}.T' in plain.roles) for name in 'ABC')}}}",
        ]
    )
    values = ", ".join(_value(parameter) for parameter in plain.parameters)
    threads = _nominal_threads(plain)
    tile = ", ".join(map(str, plain.tile))
    return f"""\
namespace plain_user {{ /* the file may use this package's names */
#include "{file}"
}}
#undef blockIdx
#undef gridDim
#undef blockDim
namespace plain_user {{
static ::Status plain_start(const ::PlainProblem *problem, const ::Launch *where)
{{
    const int64_t plain_M = ::plain_M_of(problem), plain_N = ::plain_N_of(problem),
                  plain_K = ::plain_K_of(problem);
    (void)plain_M, (void)plain_N, (void)plain_K;
    const ::PlainValue values[] = {{{values}}};
    const ::PlainShape shape = {{{_three(plain.grid)}, {_three(plain.block)}, {plain.shared.code}}};
    return ::plain_run({plain.call}, values, shape, where);
}}
}}
static constexpr PlainFacts plain_facts = {{{facts}}};
static constexpr KernelSpec plain_spec = {{.symbol = "{plain.call}",
    .block_tile = {{{tile}}}, .thread_tile = {{{_thread_tile(plain.tile, threads)}}},
    .threads = {{{threads[0]}, {threads[1]}}},
    .static_bytes = {plain.static_bytes}, .dynamic_bytes = {_nominal(plain, plain.shared)}}};
LAUNCHER(plain)
{{
    return plain_launch(&plain_facts, plain_user::plain_start, problem, where);
}}
VARIANT(plain, "a plain kernel", "{file}", plain_spec, {{5, 0}});
"""


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _value(parameter: Parameter) -> str:
    if parameter.role in ("alpha", "beta"):
        return f"::plain_real(::plain_{parameter.role}_of(problem))"
    if parameter.role == "null":
        return "::plain_pointer(nullptr)"
    if parameter.role:
        return f"::plain_pointer(::plain_{parameter.role[0]}_of(problem))"
    if isinstance(parameter.value, Expression):
        return f"::plain_integer({parameter.value.code})"
    return f"::plain_real({parameter.value!r})"


def _three(parts: tuple[Expression, ...]) -> str:
    codes = [part.code for part in parts]
    return f"{{{', '.join([*codes, *['1'] * (3 - len(codes))])}}}"


def _nominal(plain: Plain, expression: Expression) -> int:
    return expression.at(*plain.fitting(1024, 1024, 1024))


def _nominal_threads(plain: Plain) -> tuple[int, int]:
    sizes = [_nominal(plain, part) for part in plain.block] + [1, 1]
    return sizes[0], sizes[1] * sizes[2]


def _thread_tile(tile: tuple[int, int, int], threads: tuple[int, int]) -> str:
    """The results of a thread, as a rectangle that is nearly a square."""
    results = max(tile[0] * tile[1] // (threads[0] * threads[1]), 1)
    height = next(side for side in range(math.isqrt(results), 0, -1) if results % side == 0)
    return f"{height}, {results // height}"
