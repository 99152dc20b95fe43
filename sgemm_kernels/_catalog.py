"""The kernels of the ladder, the devices and the build, as frozen objects."""

from dataclasses import dataclass
from importlib import resources

from . import _core, _cublas


@dataclass(frozen=True, slots=True, repr=False)
class Variant:
    """One kernel that computes the product: a rung of the ladder, or the reference library.

    Sizes count matrix elements. They are zero if a library chooses them itself.
    """

    name: str
    """The name to pass to ``run``."""
    summary: str
    """Its idea, in one sentence."""
    file: str | None
    """Name of the kernel's file; None for a library's kernel."""
    block_tile: tuple[int, int, int]
    """(BM, BN, BK): a block computes BM x BN results in steps of BK along K."""
    thread_tile: tuple[int, int]
    """(TM, TN): the results that each computing thread owns (producer threads own none)."""
    threads: int
    """Threads per block."""
    shared_bytes: int
    """Shared memory per block, in bytes."""
    min_compute_capability: tuple[int, int]
    """(major, minor) of the oldest NVIDIA GPU that runs it."""
    architecture_specific: bool
    """True if newer GPUs do not run it: it is machine code for one architecture, such as sm_90a."""
    devices: tuple[str, ...]
    """Device kinds that this build runs it on: 'cpu', 'cuda', or 'hip' for AMD GPUs."""

    @property
    def source(self) -> str | None:
        """Text of the kernel's file; None for a library's kernel."""
        return None if self.file is None else kernel_file(self.file)

    @property
    def unavailable(self) -> str | None:
        """Why no device of this machine can run it; None if one can.

        Computed when read: a variant that needs a GPU looks for one, and the reference also loads
        the cuBLAS or rocBLAS library.
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
        """Tells whether this kind of device can run the variant.

        Parameters
        ----------
        device
            One of ``devices()``, usable or not.

        Returns
        -------
        bool
            True if the compiled kernel supports the device's kind and compute capability.
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
    """A device that runs kernels, or the reason why it cannot.

    A figure is None if the device does not have it or does not report it.
    """

    name: str
    """The name to pass to ``run``: 'cpu', 'cuda:0', ..., or 'hip:0', ... in a build for AMD
    GPUs."""
    kind: str
    """'cpu', 'cuda', or 'hip'."""
    model: str
    """The vendor's name. For an AMD GPU with its architecture, such as 'Instinct (gfx90a)'."""
    usable: bool
    """Whether ``run`` can use it."""
    problem: str | None
    """Why it cannot be used; None if it can."""
    compute_capability: tuple[int, int] | None
    """(major, minor) of an NVIDIA GPU; None for others."""
    multiprocessors: int
    """Streaming multiprocessors of an NVIDIA GPU, or compute units of an AMD GPU; for the CPU, the
    cores that this process may use."""
    fused_multiply_add: bool
    """True if kernels multiply and add with one rounding: on every GPU and on CPUs with FMA."""
    clock_mhz: int | None
    """Highest clock of the multiprocessors, in MHz."""
    memory_clock_mhz: int | None
    """Highest clock of the memory, in MHz."""
    memory_bus_bits: int | None
    """Width of the memory bus, in bits; it transfers twice per clock."""
    memory_bytes: int
    """Total memory, in bytes."""
    l2_bytes: int | None
    """Size of the L2 cache, in bytes."""
    shared_bytes_per_multiprocessor: int | None
    """Shared memory per multiprocessor, in bytes."""
    registers_per_multiprocessor: int | None
    """32-bit registers per multiprocessor."""
    driver: str | None
    """Newest CUDA or HIP version that the driver supports, such as '13.0'."""
    pci_bus_id: str | None
    """PCI address of a GPU, such as '0000:3B:00.0', as in NVML and nvidia-smi."""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """How the extension was compiled."""

    csrc_hash: str
    """First 16 hexadecimal digits of the SHA-256 over the C and CUDA sources."""
    cuda_toolkit: str | None
    """Version of the CUDA toolkit; None in a build without CUDA."""
    hip: str | None
    """Version of HIP; None in a build that is not for AMD GPUs."""
    architectures: tuple[str, ...]
    """GPU architectures in this build: 'sm_90' and 'gfx90a' are machine code, 'compute_90' is
    PTX."""
    compiler: str
    """The host compiler and its version."""


KERNEL_FOLDERS = ("gemm/kernel", "ladder", "gemm/simt", "gemm/tensor_cores", "gemm/plan")
"""The folders of csrc/ with kernels and what they include. No two of their files have one name."""


def kernel_place(name: str) -> str:
    """The path below csrc/ of a kernel's file, or of a header that kernels include."""
    csrc = resources.files(__package__) / "csrc"
    places = [f"{folder}/{name}" for folder in KERNEL_FOLDERS]
    return next(place for place in places if csrc.joinpath(place).is_file())


def kernel_file(name: str) -> str:
    """The text of such a file."""
    csrc = resources.files(__package__) / "csrc"
    return csrc.joinpath(kernel_place(name)).read_text(encoding="utf-8")


def variants() -> tuple[Variant, ...]:
    """Lists the kernels. Does not access a GPU.

    Returns
    -------
    tuple of Variant
        The ladder in order, then the reference library, then ``auto``.
    """
    return tuple(Variant(**entry) for entry in _core._variants())


def devices() -> tuple[Device, ...]:
    """Lists the devices of this machine.

    Returns
    -------
    tuple of Device
        Every device, usable or not: GPUs first, the CPU last.
    """
    return tuple(Device(**entry) for entry in _core._devices())


def build_info() -> BuildInfo:
    """Tells how the extension was compiled. Does not access a GPU.

    Returns
    -------
    BuildInfo
        The sources, the toolkit, the architectures and the compiler.
    """
    return BuildInfo(**_core._build_info())


def default_device() -> Device:
    """The device that ``run(..., device=None)`` uses: the first usable GPU, otherwise the CPU."""
    return next(device for device in devices() if device.usable)
