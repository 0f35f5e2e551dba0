"""Fitting of kernels whose values are spread over workers: only sums travel.

The fit of one kernel is a generator. It yields what it wants to know, a sum over all samples, and is sent the answer;
so all kernels of a bank ask together, and a round of questions is one journey to the workers and back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..views import Views
from .checks import check_source
from .cluster_blocks import Means, Statistics, Waiting
from .fitted import JoinedNode, Leaf, Node
from .fitting import NODES, Fitting, Item, leaves, usable_means
from .functions import Joined, Precomputed
from .steps import NORMALISATIONS, REPAIRS, step_names, unwrap

Request = Means | Statistics
#: Sends a round of questions to all workers, and adds up their answers.
Ask = Callable[[Sequence[Request]], list[NDArray]]


@dataclass(frozen=True)
class Spread:
    """What is known of a kernel whose values are elsewhere; see `steps.Summed`."""

    sums: NDArray  # (2, n): diagonal, sums of the rows

    @property
    def n(self) -> int:
        return self.sums.shape[1]

    def diagonal(self) -> NDArray:
        return self.sums[0]

    def row_sums(self) -> NDArray:
        return self.sums[1]


def refuse(fitting: Fitting) -> None:
    """Refuse kernels that cannot be built from features by workers that see some rows each."""
    if not isinstance(fitting.features, Views):
        raise ValueError(
            f"a cluster computes kernels from features in memory, got {type(fitting.features).__name__}: leave cluster "
            "out, or give arrays"
        )
    if not fitting.features.complete:
        raise ValueError(
            "some samples lack a view, which a bank on a cluster has no kernels for: leave these samples out, or leave "
            "cluster out"
        )
    for item in fitting.items:
        for view, leaf in leaves(item.kernel, item.view):
            if isinstance(leaf, Precomputed):
                raise ValueError(
                    f"kernel {item.name!r} is precomputed on view {view!r}: workers compute kernels from features, "
                    "and its values are in memory already. Leave cluster out, or give the features"
                )
        repairs = [step for step in _all_step_names(item) if step in REPAIRS]
        if repairs:
            raise ValueError(
                f"kernel {item.name!r} is repaired by {repairs[0]!r}, which needs all of its values in one memory: "
                "leave cluster out, or take a kernel that is positive semi-definite by itself"
            )


def _all_step_names(item: Item) -> tuple[str, ...]:
    core, steps = unwrap(item.kernel)
    if isinstance(core, Joined):
        inside = (step for view, kernel in core.factors for step in _all_step_names(Item(item.name, view, kernel)))
        steps = (*inside, *steps)
    return steps


def waiting(fitting: Fitting) -> list[Waiting]:
    """The quantities of a bank, each in the place of the last kernel that is made of it; features are checked."""
    for item in fitting.items:
        for view, leaf in leaves(item.kernel, item.view):
            assert view is not None
            check_source(leaf.quantity, fitting.features[view], view)
    last = [(view, members[-1]) for view, quantity, members in fitting.groups() if quantity is not None]
    return [Waiting(j, view, unwrap(fitting.items[j].kernel)[0]) for view, j in last]


def fit(fitting: Fitting, ask: Ask) -> tuple[Node, ...]:
    """Fit all kernels, in as few rounds of questions as the kernel with most steps needs."""
    fits = [_fit(item, (*step_names(item.kernel), *fitting.normalise), fitting.n) for item in fitting.items]
    nodes: dict[int, Node] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(fits)))
    while replies:
        requests: dict[int, Request] = {}
        for j, reply in replies.items():
            try:
                requests[j] = fits[j].send(reply)
            except StopIteration as done:
                nodes[j] = done.value
        answers = ask(list(requests.values())) if requests else []
        replies = dict(zip(requests, answers, strict=True))
    return tuple(nodes[j] for j in range(len(fits)))


def _fit(item: Item, steps: tuple[str, ...], n: int) -> Generator[Request, NDArray, Leaf | JoinedNode]:
    core, _ = unwrap(item.kernel)
    node: Leaf | JoinedNode
    if isinstance(core, Joined):
        factors = []
        for view, kernel in core.factors:
            factor = Item(item.name, view or item.view, kernel)
            factors.append((yield from _fit(factor, step_names(kernel), n)))
        node = NODES[type(core)](tuple(factors), ())
    else:
        assert item.view is not None
        means = (1.0, 1.0)
        if core.needs_mean:
            total, squares = yield Means(item.view, core)
            means = usable_means(float(total), float(squares), n, item.view, [item.name])
        node = Leaf(item.view, core, core.rate(*means), ())
    for step in steps:
        known = Spread((yield Statistics(node)))
        _check_finite(known, item.name)
        node = replace(node, steps=(*node.steps, NORMALISATIONS[step](known, item.name)))
    return node


def _check_finite(kernel: Spread, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(kernel.row_sums()))
    if len(bad):
        raise ValueError(
            f"kernel {name!r} has values of sample {bad[0]} that are not finite: scale the features, or use "
            "dtype='float64' if single precision overflows"
        )
