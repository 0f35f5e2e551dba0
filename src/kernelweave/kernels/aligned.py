"""How well each kernel of a bank agrees with the targets, before anything is learned."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .bank import Bank

Array = NDArray[np.float64]

#: Bytes of kernel rows in memory at a time.
_BLOCK_BYTES = 1 << 25
#: What centring leaves of a kernel is rounding below this share of its squares.
_ROUNDING = 1e-13


def alignment(bank: Bank, y: ArrayLike, centered: bool = True) -> Array:
    """Kernel-target alignment of every kernel: the cosine between its matrix and that of the targets.

    ``<K_j, YY'>_F / (||K_j||_F ||YY'||_F)``. Without centring and for two classes it is ``y'K_j y / (n ||K_j||_F)``.

    Parameters
    ----------
    bank : Bank
        Every kernel value is read once; no kernel is ever in memory as a whole.
    y : array of shape (n_samples,) or (n_samples, n_columns)
        Classes (two are one column of -1 and +1, more a column each), or columns of targets taken as they are.
    centered : bool, default=True
        Centre kernels and targets in feature space first. Without it a constant kernel looks aligned with classes of
        different sizes, and values of different banks cannot be compared.

    Returns
    -------
    array of shape (n_kernels,)
        Between 0 and 1 (-1 for kernels with negative eigenvalues); 0 for a kernel that is zero, or zero once centred.

    See Also
    --------
    polarisation : without the norms.
    kernelweave.weights.Alignment : weights that make the combined kernel as aligned as it can be.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=80, n_useful=1, n_redundant=0, n_noise=1, random_state=0)
    >>> bank = kw.KernelBank(kw.kernels.Gaussian()).build(views)
    >>> useful, noise = kw.kernels.alignment(bank, y)
    >>> bool(useful > 5 * noise)
    True
    """
    Y = _target_columns(bank, y)
    if centered:
        Y = Y - Y.mean(axis=0)
    size = float(np.linalg.norm(Y.T @ Y))
    if size == 0:
        raise ValueError("y is the same for all samples, so nothing can be aligned with it.")
    norms = _norms(bank, centered)
    return np.divide(2.0 * bank.quadratics(Y), norms * size, out=np.zeros(bank.n_kernels), where=norms > 0)


def polarisation(bank: Bank, y: ArrayLike) -> Array:
    """Kernel polarisation of every kernel, ``<K_j, YY'>_F / n**2``: twice its energy at the duals ``Y / n``.

    It grows with the scale of a kernel, so kernels should be normalised.

    Parameters
    ----------
    bank : Bank
    y : array of shape (n_samples,) or (n_samples, n_columns)
        As in :func:`alignment`.

    Returns
    -------
    array of shape (n_kernels,)

    Examples
    --------
    >>> import kernelweave as kw
    >>> X = [[1.0, 0.0], [-1.0, 0.0]]
    >>> bank = kw.KernelBank(kw.kernels.Linear(), columns={"a": [0], "b": [1]}).build(X)
    >>> kw.kernels.polarisation(bank, [0, 1])
    array([1., 0.])
    """
    return 2.0 * bank.quadratics(_target_columns(bank, y)) / bank.n_samples**2


def _target_columns(bank: Bank, y: ArrayLike) -> Array:
    given = np.asarray(y)
    if given.ndim not in (1, 2) or len(given) != bank.n_samples:
        raise ValueError(
            f"y must be {bank.n_samples} classes, or columns of targets of shape ({bank.n_samples}, n_columns), "
            f"as many as the bank has samples; got shape {given.shape}."
        )
    if given.ndim == 1:
        classes, codes = np.unique(given, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has only one class, {classes.tolist()[0]!r}: at least two are needed.")
        return np.where(codes[:, None] == np.arange(1 if len(classes) == 2 else 0, len(classes)), 1.0, -1.0)
    columns = given.astype(np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("y has NaN or infinity in it: leave the samples out, or set what is not known to 0.")
    return columns


def _norms(bank: Bank, centered: bool) -> Array:
    """Frobenius norm of every kernel, (n_kernels,), from one pass over blocks of rows.

    ``||HKH||^2 = ||K||^2 - 2/n |K1|^2 + (1'K1)^2 / n^2``. A constant makes no difference to HKH, so one is taken off
    before squaring, which keeps the digits of kernels that are nearly constant.
    """
    n = bank.n_samples
    squares, sums = np.zeros(bank.n_kernels), np.zeros((bank.n_kernels, n))
    constant = None
    for samples, block in _row_blocks(bank):
        if centered:
            if constant is None:
                constant = block.mean(axis=(1, 2), keepdims=True)
            block -= constant
        squares += np.einsum("jik,jik->j", block, block)
        sums[:, samples] = block.sum(axis=2)
    if not centered:
        return np.sqrt(squares)
    left = squares - 2.0 / n * np.einsum("ji,ji->j", sums, sums) + (sums.sum(axis=1) / n) ** 2
    return np.sqrt(np.where(left > _ROUNDING * squares, left, 0.0))


def _row_blocks(bank: Bank) -> Iterator[tuple[NDArray[np.intp], Array]]:
    """Samples and their kernel rows (n_kernels, n_block, n_samples), as copies that the caller may change."""
    size = max(1, _BLOCK_BYTES // (8 * bank.n_kernels * bank.n_samples))
    for first in range(0, bank.n_samples, size):
        samples = np.arange(first, min(first + size, bank.n_samples))
        yield samples, np.array(bank.rows(samples), dtype=np.float64)
