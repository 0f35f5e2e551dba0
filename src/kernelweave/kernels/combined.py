"""Kernels made of all kernels of a bank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from .functions import ExponentialKernel, Gaussian, Kernel, Laplacian, Product
from .kernel_bank import KernelBank


@overload
def geometric_mean(kernels: KernelBank) -> KernelBank: ...
@overload
def geometric_mean(kernels: Mapping[str, Kernel | Sequence[Kernel]] | Sequence[Kernel]) -> Product: ...
def geometric_mean(kernels: Any) -> KernelBank | Product:
    """The geometric mean of F exponential kernels, the F-th root of their product element by element, as one kernel.

    This is the "product kernel" that learned combinations are compared with: the exponential of minus the mean of the
    scaled distances. It is the product of the same kernels with F times their bandwidth, and so it is positive
    semi-definite, which roots of kernels in general are not.

    Parameters
    ----------
    kernels : KernelBank, mapping of view names to kernels or lists of kernels, or list of kernels on one view
        Of `Gaussian`, `Laplacian`, `ChiSquared` and other exponential kernels, and of products of these.

    Returns
    -------
    Product; of a KernelBank, a bank with the same settings that holds this kernel only

    Examples
    --------
    >>> from kernelweave.kernels import ChiSquared, Gaussian, geometric_mean
    >>> geometric_mean({"sift": ChiSquared(), "gist": [Gaussian(), Gaussian(gamma=2.0)]})
    Product({'sift': ChiSquared(3)}, {'gist': Gaussian(3)}, {'gist': Gaussian(gamma=0.666667)})
    """
    if isinstance(kernels, KernelBank):
        settings = {name: value for name, value in vars(kernels).items() if name != "kernels"}
        return KernelBank(geometric_mean(kernels.kernels), **settings)  # type: ignore[arg-type]
    if isinstance(kernels, str):
        raise TypeError(
            f"the geometric mean is taken of kernels, which have bandwidths, but got {kernels!r}; the root of a "
            "precomputed kernel need not be a kernel"
        )
    parts: list[tuple[str | None, Kernel]] = []
    for view, group in kernels.items() if isinstance(kernels, Mapping) else [(None, kernels)]:
        parts += [(view, kernel) for kernel in (group if isinstance(group, Sequence) else [group])]
    roots = [(view, _root(kernel, len(parts))) for view, kernel in parts]
    return Product(*(root if view is None else {view: root} for view, root in roots))


def _root(kernel: Kernel, degree: int) -> Kernel:
    """The kernel whose power of that degree is the kernel."""
    if isinstance(kernel, Product):
        factors = ((view, _root(factor, degree)) for view, factor in kernel.factors)
        return Product(*(factor if view is None else {view: factor} for view, factor in factors))
    if not isinstance(kernel, (Gaussian, Laplacian, ExponentialKernel)):
        label = kernel.label if isinstance(kernel, Kernel) else repr(kernel)
        raise TypeError(
            f"{label} is not the exponential of a distance, so its roots need not be kernels: leave it out of the "
            "geometric mean, or use Gaussian, Laplacian or ChiSquared there"
        )
    wider = degree**2 if isinstance(kernel, Laplacian) else degree  # its gamma stands under a root
    if kernel.gamma is not None:
        return replace(kernel, gamma=kernel.gamma / wider)  # type: ignore[type-var]
    return replace(kernel, multiplier=kernel.multiplier * wider)  # type: ignore[type-var]
