"""Several problems on one device bank, each with kernel weights of its own, that read the kernels together.

Every problem is solved by a thread. Where one needs the kernels, it waits until all others do, too; the last to arrive
does the work of all of them at once. A kernel, which takes far longer to read than to multiply, is then read once for
all problems instead of once for each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .operators import Operator

if TYPE_CHECKING:
    from torch import Tensor


#: Seconds to wait for members who were announced.
PATIENCE = 2.0


@dataclass
class _Request:
    work: Callable[[list[tuple]], list[Any]]
    arguments: tuple
    result: Any = None
    error: BaseException | None = None
    done: bool = False


class Meeting:
    """Where the threads of several problems wait for each other, if they were announced; else nobody waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._members = 0
        self._awaited = 0  # members who have not come yet
        self._requests: list[_Request] = []
        self._here = threading.local()

    @property
    def joined(self) -> bool:
        """Whether the calling thread is one of several members."""
        return self._members + self._awaited > 1 and getattr(self._here, "inside", False)

    def expect(self, n: int) -> None:
        """So many members are on their way, and the first to come waits for them; none ends an announcement."""
        with self._changed:
            self._awaited = n

    @contextmanager
    def member(self) -> Iterator[None]:
        """What a thread does in this block it does as a member: the others wait for its requests."""
        with self._changed:
            announced = self._members + self._awaited > 0
            if announced:
                self._members += 1
                self._awaited = max(self._awaited - 1, 0)
        self._here.inside = announced
        try:
            yield
        finally:
            self._here.inside = False
            if announced:
                with self._changed:
                    self._members -= 1
                    self._serve_if_complete()

    def ask(self, work: Callable[[list[tuple]], list[Any]], *arguments: Any) -> Any:
        """The result of ``work([arguments, ...])`` for these arguments, done together with those of all members."""
        if not self.joined:
            return work([arguments])[0]
        request = _Request(work, arguments)
        with self._changed:
            self._requests.append(request)
            self._serve_if_complete()
            while not request.done:
                if not self._changed.wait(PATIENCE) and self._awaited:
                    self._awaited = 0  # who has not come by now does not come at the same time
                    self._serve_if_complete()
        if request.error is not None:
            raise request.error
        return request.result

    def _serve_if_complete(self) -> None:
        """Do all that was asked for, once nobody is left who might still ask; called with the lock held."""
        if not self._requests or len(self._requests) < self._members + self._awaited:
            return
        requests, self._requests = self._requests, []
        for work in dict.fromkeys(request.work for request in requests):
            group = [request for request in requests if request.work is work]
            try:
                results = work([request.arguments for request in group])
                for request, result in zip(group, results, strict=True):
                    request.result = result
            except BaseException as error:  # it is raised where it was asked for
                for request in group:
                    request.error = error
        for request in requests:
            request.done = True
        self._changed.notify_all()


class WeightedKernels(Operator):
    """Sums of kernels that are never added up: ``sum_j weights[c, j] K_j`` multiplies column c.

    Parameters
    ----------
    bank : DeviceBank
    weights : array of shape (m, n_kernels)
        One row for every column that is multiplied, or one for all of them.
    """

    def __init__(self, bank: Any, weights: NDArray) -> None:
        self.bank, self.weights = bank, weights
        self.shape = (bank.n_samples, bank.n_samples)
        self.dtype = np.dtype(np.float64 if bank.dtype == np.float64 else np.float32)

    def place(self, V: NDArray) -> Tensor:
        return self.bank.placed(V)

    def times(self, V: Tensor) -> Tensor:
        return self._multiplied(V, V.to(self.bank.working))

    def exactly(self, V: Tensor) -> Tensor:
        return self._multiplied(V, V)

    def _multiplied(self, V: Tensor, narrow: Tensor) -> Tensor:
        from .device import exact_product

        total = 0.0 * V
        for j in np.flatnonzero(self.weights.any(axis=0)):
            scale = self.place(self.weights[:, j]).to(narrow.dtype)
            total += exact_product(self.bank.kernels[j], narrow * scale).to(V.dtype)
        return total

    def product(self, V: NDArray) -> NDArray:
        return self.exactly(self.place(V)).cpu().numpy().astype(np.float64)

    def part(self, rows: NDArray, columns: NDArray) -> Tensor:
        """``K[rows][:, columns]`` of the one sum there is, left on the device."""
        return sum(
            float(self.weights[0, j]) * self.bank.kernel_part(j, rows, columns).to(self.bank.working)
            for j in np.flatnonzero(self.weights[0])
        )

    def block(self, rows: NDArray, columns: NDArray) -> NDArray:
        return self.part(rows, columns).cpu().numpy()

    def diagonal(self) -> NDArray:
        """Diagonals of all sums, (n, m); of a single one (n,)."""
        diagonals = self.bank.diagonals().T.astype(np.float64) @ self.weights.T
        return diagonals[:, 0] if len(self.weights) == 1 else diagonals

    def restrict(self, samples: NDArray) -> Any:
        return self.bank.restrict(samples).combine(self.weights[0])


def together(kernels: Sequence[WeightedKernels], n_columns: Sequence[int]) -> WeightedKernels:
    """One operator for the columns of several problems on the same bank, side by side."""
    return WeightedKernels(
        kernels[0].bank,
        np.concatenate([np.repeat(K.weights, m, axis=0) for K, m in zip(kernels, n_columns, strict=True)]),
    )
