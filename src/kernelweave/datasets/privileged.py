"""Generated identities seen twice: in a noisy view that everybody has, and in a clean one that only training has."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

Array = NDArray[np.float64]


def make_privileged(
    n_identities: int = 20,
    n_shots: int = 10,
    n_features: int = 20,
    n_privileged: int = 10,
    n_latent: int = 5,
    noise: float = 0.5,
    clean_noise: float = 0.1,
    nuisance: float = 2.0,
    random_state: int | RandomState | None = None,
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Generate shots of identities in two views, as a camera with a depth sensor takes them.

    Every shot has its own appearance: the identity plus a little variation. The main view X shows it through noise and
    a strong nuisance (light, say) in directions of its own; the privileged view Z shows the same appearance almost
    clean. So pairs that X alone cannot judge, Z can, and a distance for X profits from it.

    Parameters
    ----------
    n_identities, n_shots : int, default=20, 10
        Number of identities, and of samples of each.
    n_features, n_privileged : int, default=20, 10
        Columns of X and of Z, both at least `n_latent`.
    n_latent : int, default=5
        Dimension of an appearance.
    noise, clean_noise : float, default=0.5, 0.1
        Standard deviation of the noise in every column of X and of Z, beside identities of standard deviation 1 in
        each latent direction.
    nuisance : float, default=2.0
        Standard deviation of what moves X in as many other directions as an appearance has.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    X : ndarray, shape (n_identities * n_shots, n_features)
    Z : ndarray, shape (n_identities * n_shots, n_privileged)
    y : ndarray of int, shape (n_identities * n_shots,)

    Examples
    --------
    >>> from kernelweave.datasets import make_privileged
    >>> X, Z, y = make_privileged(n_identities=4, n_shots=3, random_state=0)
    >>> X.shape, Z.shape, y.tolist()
    ((12, 20), (12, 10), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    """
    if n_identities < 2 or n_shots < 1 or n_latent < 1 or min(n_features, n_privileged) < n_latent:
        raise ValueError(
            f"make_privileged needs at least 2 identities of 1 shot, and n_features and n_privileged of at least "
            f"n_latent >= 1; got n_identities={n_identities}, n_shots={n_shots}, n_latent={n_latent}, "
            f"n_features={n_features}, n_privileged={n_privileged}."
        )
    rng = check_random_state(random_state)
    y = np.repeat(np.arange(n_identities), n_shots)
    identity = rng.standard_normal((n_identities, n_latent))
    appearance = identity[y] + 0.3 * rng.standard_normal((len(y), n_latent))
    axes = _orthonormal(rng, n_features)
    n_moved = min(n_latent, n_features - n_latent)
    X = appearance @ axes[:n_latent] + nuisance * rng.standard_normal((len(y), n_moved)) @ axes[n_latent:][:n_moved]
    X += noise * rng.standard_normal(X.shape)
    Z = appearance @ _orthonormal(rng, n_privileged)[:n_latent]
    Z += clean_noise * rng.standard_normal(Z.shape)
    return X, Z, y.astype(np.int64)


def _orthonormal(rng: RandomState, size: int) -> Array:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]
