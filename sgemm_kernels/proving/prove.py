"""Proves that a GPU's tensor cores have the bits of the published model."""

import datetime
from dataclasses import replace

from .. import _proofs
from .._catalog import Device, build_info, default_device
from .._core import DeviceError
from .._version import __version__
from ..measuring.devices import find_device
from .hard_cases import hard_cases
from .models import MODELS, Model
from .proof import Proof
from .speed import fit, time_shapes
from .steps import Compared, compare_steps

ROUNDS = 32
"""Times 65,536 results of each kind of operands: two million."""


def prove(*, device: str | None = None, rounds: int = ROUNDS) -> Proof:
    """Compares the tensor cores of a GPU with their published model, bit by bit.

    Then it computes hard operands with ``mma`` and compares the errors with the bound, times
    ``mma`` beside ``simt``, and fits the estimate of ``mma`` that ``auto`` uses. If everything
    agrees, it stores the verdict in the user's cache folder: from then on ``auto`` uses tensor
    cores on GPUs of this name, for as long as the package stays the same. Otherwise it removes an
    earlier verdict, for processes that start later.

    Parameters
    ----------
    device
        An NVIDIA GPU of compute capability 8.0 or newer, as for ``run``.
    rounds
        Each compares 65,536 results of each kind of operands, at least 1.

    Returns
    -------
    Proof
        What was verified, and whether ``auto`` may use the tensor cores.

    Raises
    ------
    DeviceError
        If there is no such GPU.
    ValueError
        If ``rounds`` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: pass 1 or more")
    gpu = find_device(device) if device is not None else default_device()
    if gpu.compute_capability is None:
        raise DeviceError(
            f"prove examines the tensor cores of an NVIDIA GPU, and {gpu.name} has none: run it "
            "on a machine with such a GPU"
        )
    proof = _examined(gpu, rounds)
    if proof.proven and proof.fit is not None:
        _proofs.keep(
            gpu.model,
            {
                "compute_capability": list(gpu.compute_capability),
                "date": proof.date,
                "rate": proof.fit.rate,
                "start": proof.fit.start,
            },
        )
    else:
        _proofs.forget(gpu.model)
    return proof


def _examined(gpu: Device, rounds: int) -> Proof:
    assert gpu.compute_capability is not None
    model = MODELS.get(gpu.compute_capability)
    proof = Proof(
        gpu.model,
        gpu.compute_capability,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        gpu.driver,
        build_info().csrc_hash,
        __version__,
        model,
    )
    if model is None:
        known = ", ".join("{}.{}".format(*capability) for capability in MODELS)
        return replace(
            proof,
            refusal="there is no published model of its tensor cores here, only of compute "
            f"capability {known}",
        )
    if model.bound_fault is not None:
        return replace(proof, refusal=f"the error bound cannot be shown: {model.bound_fault}")
    compared = tuple(compare_steps(gpu.name, model, rounds))
    proof = replace(proof, compared=compared)
    refusal = refusal_of(compared, gpu.name, model)
    if refusal is not None:
        return replace(proof, refusal=refusal)
    hard = tuple(hard_cases(gpu.name, model))
    proof = replace(proof, hard_cases=hard)
    worst = max(hard, key=lambda each: each.worst_share)
    if not worst.worst_share <= 1:
        return replace(
            proof,
            refusal=f"the error of mma is {worst.worst_share:.3g} times the bound for "
            f"{worst.name}, K = {worst.K}",
        )
    times = time_shapes(gpu)
    if not times:
        return replace(proof, refusal="no product could be timed: run prove on an idle machine")
    return replace(proof, times=times, fit=fit(gpu, times))


def refusal_of(compared: tuple[Compared, ...], device: str, model: Model) -> str | None:
    """The first difference from the model, and which other model agrees; None without one."""
    wrong = next((each for each in compared if each.differing), None)
    if wrong is None:
        return None
    others = [str(other) for other in _neighbours(model) if _agrees(device, other)]
    advice = f". The results agree with another model: {others[0]}" if others else ""
    return (
        f"its tensor cores differ from the model ({model}). First difference, operands "
        f"'{wrong.kind}': {wrong.first_difference}{advice}"
    )


def _neighbours(model: Model) -> list[Model]:
    """The same with other numbers, as the CPU device can emulate them."""
    numbers = [(products, bits) for products in (4, 8, 16) for bits in (23, 24, 25)]
    return [replace(model, products=products, bits=bits) for products, bits in numbers]


def _agrees(device: str, model: Model) -> bool:
    return all(each.differing == 0 for each in compare_steps(device, model, 1))
