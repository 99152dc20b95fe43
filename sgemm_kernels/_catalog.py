"""What there is to choose from: the ladder, the devices, and the build, as frozen objects."""

from dataclasses import dataclass
from importlib import resources

from . import _core, _cublas


@dataclass(frozen=True, slots=True, repr=False)
class Variant:
    """One way to compute the product: a rung of the ladder, or the reference above it.

    Sizes count matrix elements and are zero where a library chooses them itself.
    """

    name: str
    """What ``run`` calls it."""
    summary: str
    """Its idea, in one sentence."""
    file: str | None
    """The file of its kernel; None for a library's kernel."""
    block_tile: tuple[int, int, int]
    """(BM, BN, BK): a block computes BM x BN results, BK steps of K at a time."""
    thread_tile: tuple[int, int]
    """(TM, TN): the results that one thread owns, of those that do not merely copy for others."""
    threads: int
    """Threads per block."""
    shared_bytes: int
    """Shared memory per block, in bytes."""
    min_compute_capability: tuple[int, int]
    """(major, minor) of the oldest GPU of NVIDIA's that runs it."""
    architecture_specific: bool
    """Whether no newer GPU runs it either: it is machine code for that one alone, as sm_90a is."""
    devices: tuple[str, ...]
    """The kinds of device that this build runs it on: 'cpu', 'cuda' or, for AMD GPUs, 'hip'."""

    @property
    def source(self) -> str | None:
        """The text of its kernel file; None for a library's kernel."""
        return None if self.file is None else kernel_file(self.file)

    @property
    def unavailable(self) -> str | None:
        """Why no device of this machine can run it; None if one can.

        Found out when read: for a variant that needs a GPU this looks for one, and for the
        reference it also opens the cuBLAS or rocBLAS library.
        """
        if "cpu" in self.devices:
            return None
        problem = _core._cuda_problem()
        if problem is not None:
            return f"{self.name!r} needs a GPU: {problem}"
        if _core._GPU_KIND not in self.devices:
            return f"{self.name!r} is not part of this build"
        usable = [d for d in devices() if d.kind != "cpu" and d.usable]
        if not any(self.runs_on(d) for d in usable):
            major, minor = self.min_compute_capability
            others = "and no other" if self.architecture_specific else "or newer"
            return f"{self.name!r} needs a GPU of compute capability {major}.{minor} {others}"
        if self.file is None:
            try:
                _cublas.load()
            except _core.UnsupportedVariantError as error:
                return str(error)
        return None

    def runs_on(self, device: "Device") -> bool:
        """Whether a device is of a kind that runs it.

        Parameters
        ----------
        device
            One of ``devices()``, whether or not it can be used at all.

        Returns
        -------
        bool
            What the kernel was compiled for, and the device's compute capability, allow.
        """
        if device.compute_capability is None:
            return device.kind in self.devices
        new_enough = device.compute_capability >= self.min_compute_capability
        too_new = (
            self.architecture_specific and device.compute_capability != self.min_compute_capability
        )
        return device.kind in self.devices and new_enough and not too_new

    def __repr__(self) -> str:
        if self.file is None:
            return f"<Variant {self.name}: {self.summary}>"
        tile = "x".join(map(str, self.block_tile))
        each = "x".join(map(str, self.thread_tile))
        return (
            f"<Variant {self.name}: block tile {tile}, {each} results per thread, "
            f"{self.threads} threads, {self.shared_bytes} bytes shared>"
        )


@dataclass(frozen=True, slots=True)
class Device:
    """A device that can run kernels, or the reason why it cannot.

    A figure is None where the device has no such thing or does not tell.
    """

    name: str
    """What ``run`` calls it: 'cpu', 'cuda:0', ..., or 'hip:0', ... in a build for AMD GPUs."""
    kind: str
    """'cpu', 'cuda', or 'hip'."""
    model: str
    """The maker's name for it; of an AMD GPU its architecture too, as in 'Instinct (gfx90a)'."""
    usable: bool
    """Whether ``run`` can use it."""
    problem: str | None
    """Why it cannot be used; None if it can."""
    compute_capability: tuple[int, int] | None
    """(major, minor) of a GPU of NVIDIA's."""
    multiprocessors: int
    """Streaming multiprocessors of a GPU, or compute units of AMD's; for the CPU, the cores this
    process may use."""
    fused_multiply_add: bool
    """Whether kernels multiply and add with one rounding, as every GPU does and a CPU that can."""
    clock_mhz: int | None
    """Highest clock of the multiprocessors, in MHz."""
    memory_clock_mhz: int | None
    """Highest clock of the memory, in MHz."""
    memory_bytes: int
    """Memory in all, in bytes."""
    l2_bytes: int | None
    """Level-2 cache, in bytes."""
    shared_bytes_per_multiprocessor: int | None
    """Shared memory per multiprocessor, in bytes."""
    registers_per_multiprocessor: int | None
    """32-bit registers per multiprocessor."""
    driver: str | None
    """The newest version of CUDA, or HIP, that the driver serves, such as '13.0'."""
    pci_bus_id: str | None
    """Where a GPU sits, such as '0000:3B:00.0': what NVML and nvidia-smi know it by."""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """How the extension was compiled."""

    csrc_hash: str
    """First 16 hexadecimal digits of the SHA-256 over the C and CUDA sources."""
    cuda_toolkit: str | None
    """Version of the CUDA toolkit; None for a build without CUDA."""
    hip: str | None
    """Version of HIP; None for a build that is not for AMD GPUs."""
    architectures: tuple[str, ...]
    """GPU architectures compiled in: 'sm_90' and 'gfx90a' are machine code, 'compute_90' is PTX."""
    compiler: str
    """The host compiler and its version."""


def kernel_file(name: str) -> str:
    """The text of a file of csrc/ladder, which the package has beside it."""
    ladder = resources.files(__package__) / "csrc" / "ladder"
    return ladder.joinpath(name).read_text(encoding="utf-8")


def variants() -> tuple[Variant, ...]:
    """Tells what there is to multiply with. Touches no GPU.

    Returns
    -------
    tuple of Variant
        The ladder in order, then the reference above it, then ``auto``.
    """
    return tuple(Variant(**entry) for entry in _core._variants())


def devices() -> tuple[Device, ...]:
    """Tells what there is to multiply on.

    Returns
    -------
    tuple of Device
        Every device of this machine, usable or not: GPUs first, the CPU last.
    """
    return tuple(Device(**entry) for entry in _core._devices())


def build_info() -> BuildInfo:
    """Tells how the extension was compiled. Touches no GPU.

    Returns
    -------
    BuildInfo
        The sources, the toolkit, the architectures and the compiler.
    """
    return BuildInfo(**_core._build_info())


def default_device() -> Device:
    """The device that serves ``run(..., device=None)``: the first usable GPU, else the CPU."""
    return next(device for device in devices() if device.usable)
