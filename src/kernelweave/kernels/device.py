"""A bank whose kernels are computed, kept, combined and multiplied by torch: on a GPU, or anywhere torch runs.

Every kernel is one full symmetric matrix: twice the bytes of a triangle, but then all work is plain matrix products.
Nothing here needs torch to be imported before a device is asked for.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..views import Views
from .bank import Bank
from .checks import SUBSET, check_positive_block, refuse_value, subset
from .device_batches import Meeting, WeightedKernels
from .expansion import Expansion, Part
from .fitted import LazyRows, Node
from .fitting import Fitting, Item, PackedQuantity, Track
from .functions import Kernel
from .operators import Operator, Running
from .quantities import Quantity
from .steps import NORMALISATIONS, REPAIRS, Step

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Share of the free memory of a device that a bank may take when no limit is given.
SHARE_OF_DEVICE = 0.9
#: Matrices of n * n numbers in single precision that building and learning need beside the bank: the combined kernel,
#: a quantity and a temporary.
BESIDE = 3
#: The largest number of half precision.
LARGEST_HALF = 65504.0
#: Bytes of a combined kernel that are added to at a time: they stay in the cache of the device while they are.
ADDED_AT_ONCE = 1 << 24


def torch_device(name: Any) -> torch.device:
    """The torch device a user named; refused if torch or the device is not there."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={str(name)!r} needs torch, which is not installed: pip install kernelweave[gpu], or leave device "
            "out to keep the kernels in memory"
        ) from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"device is a torch device such as 'cuda', 'cuda:1', 'mps' or 'cpu', got {name!r}") from None
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if device.type not in there:
        raise ValueError(f"device is 'cuda', 'cuda:1', 'mps' or 'cpu', got {name!r}: others are not supported")
    if not there[device.type]():
        raise RuntimeError(
            f"device={str(name)!r} is not there: torch {torch.__version__} finds no {device.type.upper()} device. "
            "Install the torch build for it and its driver, or leave device out to keep the kernels in memory"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RuntimeError(f"device={str(name)!r} is not there: this machine has {torch.cuda.device_count()} of them")
    return device


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device."""
    import torch

    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.current_allocated_memory())
    from .kernel_bank import available_memory

    return available_memory()


def fits_on_gpu(needed: int) -> bool:
    """Whether torch is installed and has a CUDA device with that many free bytes."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available() and needed <= SHARE_OF_DEVICE * free_memory(torch.device("cuda"))


class DeviceKernel(Operator):
    """A combined kernel on a device.

    Parameters
    ----------
    values : Tensor of shape (n, n)
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape = (len(values), len(values))
        self.dtype = _numpy_dtype(values)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.values.device

    def place(self, V: NDArray) -> Tensor:
        from .device_kernels import sent, wide

        return sent(np.asarray(V), self.device, wide(self.device))

    def times(self, V: Tensor) -> Tensor:
        return (self.values @ V.to(self.values.dtype)).to(V.dtype)

    def exactly(self, V: Tensor) -> Tensor:
        return exact_product(self.values, V)

    def product(self, V: NDArray) -> NDArray:
        return self.exactly(self.place(V)).cpu().numpy().astype(np.float64)

    def part(self, rows: NDArray, columns: NDArray) -> Tensor:
        """``K[rows][:, columns]``, left on the device."""
        return self.values[_index(rows, self.values)][:, _index(columns, self.values)]

    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        return self.part(rows, columns).cpu().numpy()

    def diagonal(self) -> NDArray:
        return self.values.diagonal().cpu().numpy()

    def restrict(self, samples: NDArray) -> DeviceKernel:
        return DeviceKernel(self.part(samples, samples))

    def running(self, F: NDArray) -> DeviceRunning:
        return DeviceRunning(self, F)


class DeviceRunning(Running):
    """A product that is kept up to date on the device; only the rows in question travel."""

    K: DeviceKernel

    def __init__(self, K: DeviceKernel, F: NDArray) -> None:
        super().__init__(K, F)
        self._there = K.place(F).to(K.values.dtype)

    def at(self, rows: slice) -> NDArray:
        return self._there[rows].cpu().numpy().astype(np.float64)

    def add(self, rows: slice, delta: NDArray) -> None:
        if delta.any():
            change = self.K.place(delta).to(self._there.dtype)
            self._there.addmm_(self.K.values[:, rows], change)

    def finish(self) -> None:
        self.F[:] = self._there.cpu().numpy()


class DeviceBank(Bank):
    """All kernels, full matrices, on one device.

    Parameters
    ----------
    kernels : list of Tensor of shape (n, n)
    meeting : Meeting
        Where problems that are solved side by side wait for each other.
    """

    #: Problems are solved by threads side by side: processes could not share the device's memory.
    parallel = "threads"

    def __init__(self, kernels: list[Tensor], meeting: Meeting, *description: Any) -> None:
        super().__init__(*description)
        self.kernels = kernels
        self._meeting = meeting

    @property
    def device(self) -> torch.device:
        """Where the kernels are."""
        return self.kernels[0].device

    @property
    def nbytes(self) -> int:
        return sum(K.numel() * K.element_size() for K in self.kernels)

    def combine(self, weights: ArrayLike, out: Any = None) -> Any:
        import torch

        from .device_kernels import row_blocks

        weights = self._checked_weights(weights)
        if self._meeting.joined:
            return WeightedKernels(self, weights[None])
        n = self.n_samples
        if out is None or isinstance(out, WeightedKernels):
            self._check_room(n * n * self.working.itemsize)
            out = DeviceKernel(torch.empty((n, n), dtype=self.working, device=self.device))
        elif not isinstance(out, DeviceKernel) or out.shape != (n, n) or out.values.device != self.device:
            raise ValueError(f"out must be a DeviceKernel of shape {(n, n)} on {self.device}, got {out!r:.200}")
        active = np.flatnonzero(weights)
        for rows in row_blocks(n, n * out.values.element_size(), ADDED_AT_ONCE):
            part = out.values[rows].zero_()
            for j in active:  # a sum with single precision is taken in single precision, whatever the kernels are in
                part.add_(self.kernels[j][rows], alpha=float(weights[j]))
        return out

    def quadratics(self, V: ArrayLike) -> NDArray:
        vectors = self._checked_vectors(V)
        support = np.flatnonzero(vectors.any(axis=1))
        if len(support) == 0:
            return np.zeros(self.n_kernels)
        placed = self.placed(vectors)
        rows = placed if len(support) == len(vectors) else placed[_index(support, placed)]
        products = self._products(placed, None if len(support) == len(vectors) else support)
        return np.array([0.5 * float((rows * product).sum()) for product in products])

    def products(self, V: ArrayLike, samples: ArrayLike) -> NDArray:
        vectors, wanted = self._checked_vectors(V), self._sample_index(samples)
        out = np.empty((self.n_kernels, len(wanted), vectors.shape[1]))
        everyone = len(wanted) == self.n_samples and bool((wanted == np.arange(self.n_samples)).all())
        for j, product in enumerate(self._products(self.placed(vectors), None if everyone else wanted)):
            out[j] = product.cpu().numpy()
        return out[..., 0] if np.ndim(V) == 1 else out

    def rows(self, samples: ArrayLike) -> NDArray:
        wanted = self._sample_index(samples)
        return np.stack([K[_index(wanted, K)].to(self.working).cpu().numpy() for K in self.kernels])

    def diagonals(self) -> NDArray:
        return np.stack([K.diagonal().to(self.working).cpu().numpy() for K in self.kernels])

    def gram(self, kernel: int) -> NDArray:
        return self.kernels[kernel].to(self.working).cpu().numpy()

    def restrict(self, samples: ArrayLike) -> DeviceBank:
        wanted = self._sample_index(samples)
        kernels = [self.kernel_part(j, wanted, wanted) for j in range(self.n_kernels)]
        return self._like(kernels, Meeting(), self.names, self._nodes, self._ids[wanted])

    def select(self, kernels: ArrayLike) -> DeviceBank:
        chosen = self._kernel_index(kernels)
        names, nodes = tuple(self.names[j] for j in chosen), tuple(self._nodes[j] for j in chosen)
        return self._like([self.kernels[j] for j in chosen], self._meeting, names, nodes, self._ids)

    def expansion(self, kernels: ArrayLike, samples: ArrayLike) -> DeviceExpansion:
        chosen = self._kernel_index(kernels)
        expansion = DeviceExpansion(
            tuple(self.names[j] for j in chosen),
            tuple(self._nodes[j] for j in chosen),
            self._features,
            self._ids[self._sample_index(samples)],
            np.float64 if self.dtype == np.float64 else np.float32,
            self._columns,
        )
        expansion.device = self.device
        return expansion

    def expect(self, n: int) -> None:
        """See `Bank.expect`: threads read the kernels together if there are at least as many of them as kernels.

        Fewer threads read less when each adds up a kernel of its own.
        """
        self._meeting.expect(n if n >= self.n_kernels else 0)

    def task(self) -> AbstractContextManager[Any]:
        return self._meeting.member()

    def ask(self, work: Callable[[list[tuple]], list[Any]], *arguments: Any) -> Any:
        """See `Meeting.ask`."""
        return self._meeting.ask(work, *arguments)

    def kernel_part(self, kernel: int, rows: NDArray, columns: NDArray) -> Tensor:
        """``K_j[rows][:, columns]``, left on the device in the precision it is stored in."""
        K = self.kernels[kernel]
        return K[_index(rows, K)][:, _index(columns, K)]

    @property
    def working(self) -> torch.dtype:
        """The precision of sums of kernels: at least single."""
        import torch

        return torch.float64 if self.dtype == np.float64 else torch.float32

    def _check_room(self, needed: int) -> None:
        """Refuse a combined kernel that the device has no room for: several threads make one each."""
        free = free_memory(self.device)
        if needed > free:
            raise MemoryError(
                f"a combined kernel needs {needed:,} bytes on {self.device}, where {free:,} are free: use "
                "fewer threads (n_jobs), fewer kernels or samples, or dtype='float16'"
            )

    def placed(self, vectors: NDArray) -> Tensor:
        from .device_kernels import sent, wide

        return sent(vectors, self.device, wide(self.device))

    def _products(self, placed: Tensor, rows: NDArray | None) -> list[Tensor]:
        """``K_j V``, all rows or some, of every kernel."""
        return self.ask(_all_products, self.kernels, placed, rows)

    def _like(self, kernels: list[Tensor], meeting: Meeting, names: tuple, nodes: tuple, ids: NDArray) -> DeviceBank:
        return DeviceBank(kernels, meeting, names, nodes, self._features, ids, self.dtype, self._columns)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a bank on a device cannot be sent to other processes: they would need its memory a second time. Problems "
            "are solved by threads with n_jobs; several models at once, as in a grid search, need n_jobs=None there"
        )


class DeviceExpansion(Expansion):
    """Kernels between new samples and training samples, computed on the device of the bank.

    It holds plain arrays only: a model that was pickled or saved is an ordinary `Expansion` again, and needs no torch.
    """

    device: torch.device

    def plain(self) -> Expansion:
        """The same, computed in memory."""
        return Expansion.from_state(self.to_state())

    def __reduce__(self) -> tuple[Callable, tuple[Mapping[str, Any]]]:
        return Expansion.from_state, (self.to_state(),)

    def _scores(self, X: Any, weights: NDArray, coef: NDArray) -> NDArray:
        import torch

        from .device_kernels import sent, wide

        active = np.flatnonzero(np.atleast_2d(weights).any(axis=0))
        new, n_new = self._read(X, active)
        scores = np.zeros((n_new, coef.shape[1]))
        if self.n_samples == 0:
            return scores
        per_column = np.broadcast_to(weights, (coef.shape[1], self.n_kernels))
        exact = wide(self.device)
        placed = sent(coef, self.device, exact)
        for rows, j, block in self._device_blocks(new, n_new, active):
            part = torch.matmul(block.to(exact), placed * sent(per_column[:, j], self.device, exact))
            scores[rows] += part.cpu().numpy()
        return scores

    def _blocks(self, new: Any, n_new: int, kernels: Any) -> Iterator[tuple[slice, int, NDArray]]:
        for rows, j, block in self._device_blocks(new, n_new, kernels):
            yield rows, j, block.cpu().numpy()

    def _device_blocks(self, new: Any, n_new: int, kernels: Any) -> Iterator[tuple[slice, int, Tensor]]:
        """As `_blocks`, in chunks that respect the memory that is free now; values stay on the device."""
        import torch

        from .device_kernels import DeviceRightRows, NewDeviceBlocks

        wanted = {int(j) for j in kernels}
        dtype = torch.float64 if self.dtype == np.float64 else torch.float32
        for part in self._parts:
            members = [(j, node) for j, node in zip(part.positions, part.nodes, strict=True) if j in wanted]
            if not members:
                continue
            right = DeviceRightRows(part.rows, part.n_rows, dtype, self.device)
            for rows in _chunks(n_new, part, members, self.device):
                left = LazyRows(new, rows)
                blocks = NewDeviceBlocks(left, rows.stop - rows.start, np.arange(part.n_rows), right)
                for j, node in members:
                    block: Any = blocks.kernel(node)
                    kept = part.kept if isinstance(part.kept, slice) else _index(part.kept, block)
                    yield rows, j, block[:, kept]


def _chunks(n_new: int, part: Part, members: list[tuple[int, Node]], device: torch.device) -> list[slice]:
    """Rows of new samples whose quantities and kernel values fit into a tenth of the free memory."""
    quantities = {(leaf.view, leaf.kernel.quantity) for _, node in members for leaf in node.leaves}
    bytes_a_row = (len(quantities) + 4) * part.n_rows * 8
    height = max(1, min(n_new, int(0.1 * free_memory(device)) // max(bytes_a_row, 1)))
    return [slice(start, min(start + height, n_new)) for start in range(0, n_new, height)]


class DeviceFitting(Fitting):
    """Fits kernels on a device; ``out`` is an (n, n) tensor there wherever `Fitting` has a packed triangle."""

    def __init__(self, fitting: Fitting, stored: list[Tensor]) -> None:
        settings = (fitting.items, fitting.features, fitting.dtype, fitting.normalise, fitting.check, fitting.missing)
        super().__init__(*settings)
        self._stored = {name: values for name, values in zip(self.names, stored, strict=True)}

    def _fit(self, item: Item, out: Any, base: PackedQuantity | None = None) -> Node:
        node = super()._fit(item, out, base)
        stored = self._stored[item.name]
        if stored is not out:
            largest = float(out.abs().max())
            if largest > LARGEST_HALF:
                raise ValueError(
                    f"kernel {item.name!r} has values up to {largest:.4g}, beyond {LARGEST_HALF:g}, the end of half "
                    "precision: normalise it (normalise='trace' for all kernels), or use dtype='float32'"
                )
            stored.copy_(out)
        return node

    def _another(self, out: Any) -> Any:
        import torch

        return torch.empty_like(out)

    def _fill(self, view: str, quantity: Quantity, out: Any) -> None:
        from .device_kernels import fill

        fill(self.features[view], quantity, out)

    def _sums(self, out: Any) -> tuple[float, float]:
        from .device_kernels import row_blocks, wide

        total, squares, exact = 0.0, 0.0, wide(out.device)
        for rows in row_blocks(len(out), len(out) * 8):
            part = out[rows].to(exact)
            total += float(part.sum())
            squares += float((part * part).sum())
        return total / 2, squares / 2

    def _transform(self, kernel: Kernel, q: Any, rate: float, out: Any) -> None:
        from .device_kernels import transform

        transform(kernel, q, rate, out)

    def _fit_step(self, step: str, out: Any, name: str) -> Step:
        from .device_kernels import Square, apply_to_training

        fitted = (NORMALISATIONS | REPAIRS)[step](Square(out), name)
        apply_to_training(fitted, out)
        return fitted

    def _check_finite(self, out: Any, name: str) -> None:
        if np.isfinite(float(out.sum())):
            return
        from .device_kernels import row_blocks

        for rows in row_blocks(len(out), len(out) * 8):
            bad = (~out[rows].isfinite()).nonzero()
            if len(bad):
                row, column = rows.start + int(bad[0, 0]), int(bad[0, 1])
                refuse_value(name, row, column, float(out[row, column]))

    def _check_positive(self, out: Any, name: str) -> None:
        some = _index(subset(self.n, SUBSET), out)
        check_positive_block(out[some][:, some].cpu().numpy().astype(np.float64), name)


def build_on_device(fitting: Fitting, spec: Any, track: Track) -> Bank:
    """See `storage.Builder`: the device is that of the `KernelBank`, or of the tensors it was given."""
    device = torch_device(spec.device or getattr(fitting.features, "device", None) or "cuda")
    import torch

    if isinstance(fitting.features, Views) and not fitting.features.complete:
        raise ValueError(
            f"some samples lack views, and device={str(device)!r} has no way to complete their kernels: leave device "
            "out, or leave these samples or views out"
        )
    dtype = _affordable(fitting, spec, device)
    n, stored_dtype = fitting.n, getattr(torch, dtype)
    half = dtype == "float16"
    stored = [torch.empty((n, n), dtype=stored_dtype, device=device) for _ in fitting.items]
    scratch = [torch.empty((n, n), dtype=torch.float32, device=device) for _ in range(2 if half else 0)]

    def slot(j: int, shared: bool) -> Any:
        return scratch[int(shared)] if half else stored[j]

    nodes = DeviceFitting(fitting, stored).run(slot, track)
    return DeviceBank(stored, Meeting(), fitting.names, nodes, fitting.features, np.arange(n), dtype, spec.columns)


def _affordable(fitting: Fitting, spec: Any, device: torch.device) -> str:
    """The precision that the kernels fit into the memory of the device with: that asked for, or half of single."""
    limit = int(SHARE_OF_DEVICE * free_memory(device)) if spec.memory_limit is None else int(spec.memory_limit)
    needs = {dtype: device_bytes(len(fitting.items), fitting.n, dtype) for dtype in (fitting.dtype.name, "float16")}
    if device.type == "mps" and fitting.dtype == np.float64:
        raise ValueError("device='mps' has no double precision: use dtype='float32' or 'float16'")
    if needs[fitting.dtype.name] <= limit:
        return fitting.dtype.name
    if fitting.dtype == np.float32 and needs["float16"] <= limit:
        warnings.warn(
            f"the kernels need {needs['float32']:,} bytes in single precision, but only {limit:,} may be taken on "
            f"{device}: they are kept in half precision, which has three digits. Fewer kernels or samples avoid that",
            stacklevel=4,
        )
        return "float16"
    raise MemoryError(
        f"the kernels need {needs[fitting.dtype.name]:,} bytes on {device} ({needs['float16']:,} in half precision), "
        f"but only {limit:,} may be taken there. Ways out: dtype='float16'; fewer kernels or samples; a larger device; "
        "rank=256 approximates the kernels; without device they are kept in memory, or in a file with storage='memmap'"
    )


def device_bytes(n_kernels: int, n: int, dtype: str) -> int:
    """Bytes a bank takes on a device, with what building it and learning need beside it."""
    beside = (BESIDE + (1 if dtype == "float16" else 0)) * max(4, np.dtype(dtype).itemsize)
    return n * n * (n_kernels * np.dtype(dtype).itemsize + beside)


def _all_products(requests: list[tuple[list[Tensor], Tensor, NDArray | None]]) -> list[list[Tensor]]:
    """Products of kernels with the columns of several requests; every kernel is read once for all of them."""
    import torch

    if len(requests) == 1:
        return [[exact_product(K, V, rows) for K in kernels] for kernels, V, rows in requests]
    results: list[dict[int, Tensor]] = [{} for _ in requests]
    everyone = {id(K): K for kernels, _, _ in requests for K in kernels}
    for key, K in everyone.items():
        users = [k for k, (kernels, _, _) in enumerate(requests) if any(key == id(other) for other in kernels)]
        whole = exact_product(K, torch.cat([requests[k][1] for k in users], dim=1))
        for k, columns in zip(users, whole.split([requests[k][1].shape[1] for k in users], dim=1), strict=True):
            rows = requests[k][2]
            results[k][key] = columns.contiguous() if rows is None else columns[_index(rows, columns)]
    return [[found[id(K)] for K in kernels] for found, (kernels, _, _) in zip(results, requests, strict=True)]


def exact_product(K: Tensor, V: Tensor, rows: NDArray | None = None) -> Tensor:
    """``K[rows] @ V`` in the precision of V, without a copy of all of K in that precision."""
    import torch

    from .device_kernels import row_blocks

    if K.dtype == V.dtype and rows is None:
        return K @ V
    chosen = None if rows is None else _index(rows, K)
    out = torch.empty((len(K) if rows is None else len(rows), V.shape[1]), dtype=V.dtype, device=V.device)
    for part in row_blocks(len(out), K.shape[1] * (K.element_size() + V.element_size())):
        out[part] = (K[part] if chosen is None else K[chosen[part]]).to(V.dtype) @ V
    return out


def _index(samples: NDArray, like: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(np.asarray(samples, dtype=np.int64)).to(like.device)


def _numpy_dtype(values: Tensor) -> np.dtype:
    return np.dtype(str(values.dtype).removeprefix("torch."))
