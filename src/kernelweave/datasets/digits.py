"""Handwritten digits (bundled with scikit-learn, so nothing is downloaded) described in several ways."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from scipy.fft import dctn
from sklearn.datasets import load_digits
from sklearn.utils import check_random_state

from ..views import Views

Array = NDArray[np.float64]

ORIENTATIONS = 8


def digits_views(noise: int = 3, random_state: int | RandomState | None = 0) -> tuple[Views, NDArray[np.int64]]:
    """The 1797 handwritten digits of scikit-learn, 8 x 8 pixels, seen as five views plus views of pure noise.

    ===============  =======  ===================================================================================
    view             columns  what it holds
    ===============  =======  ===================================================================================
    ``pixels``       64       grey values in [0, 1]
    ``profiles``     16       mean ink of every row and of every column
    ``gradients``    32       how much edge points which way (8 directions), in each quarter of the picture
    ``frequencies``  16       the 4 x 4 lowest coefficients of the cosine transform: the rough shape
    ``zones``        16       mean ink of every 2 x 2 block
    ``noise0``, ...  16-64    one of the above, of other digits picked at random: structured, but uninformative
    ===============  =======  ===================================================================================

    Parameters
    ----------
    noise : int, default=3
        Number of noise views.
    random_state : int, RandomState or None, default=0
        Decides the order in which the noise views take their digits; the other views are always the same.

    Returns
    -------
    views : Views
        All views, with 1797 rows each. All but ``frequencies`` are non-negative.
    y : ndarray of int, shape (1797,)
        The digits, 0 to 9.

    Examples
    --------
    >>> from kernelweave.datasets import digits_views
    >>> views, y = digits_views(noise=1)
    >>> {name: views[name].shape[1] for name in views.names}
    {'pixels': 64, 'profiles': 16, 'gradients': 32, 'frequencies': 16, 'zones': 16, 'noise0': 64}
    """
    if noise < 0:
        raise ValueError(f"noise is a number of views and cannot be negative; got {noise}.")
    rng = check_random_state(random_state)
    digits = load_digits()
    images = digits.images / 16.0
    real = {
        "pixels": images.reshape(len(images), -1),
        "profiles": np.hstack([images.mean(axis=2), images.mean(axis=1)]),
        "gradients": _gradients(images),
        "frequencies": dctn(images, axes=(1, 2), norm="ortho")[:, :4, :4].reshape(len(images), -1),
        "zones": images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(images), -1),
    }
    sources = list(real.values())
    shuffled = {f"noise{k}": sources[k % len(sources)][rng.permutation(len(images))] for k in range(noise)}
    return Views(real | shuffled), digits.target.astype(np.int64)


def _gradients(images: Array) -> Array:
    """Histograms of edge directions weighted by edge strength, one for each quarter: (n, 4 * ORIENTATIONS)."""
    down, right = np.gradient(images, axis=(1, 2))
    strength = np.hypot(down, right)
    direction = np.floor((np.arctan2(down, right) + np.pi) / (2 * np.pi) * ORIENTATIONS).astype(int) % ORIENTATIONS
    votes = strength[..., None] * (direction[..., None] == np.arange(ORIENTATIONS))  # (n, 8, 8, ORIENTATIONS)
    return votes.reshape(len(images), 2, 4, 2, 4, ORIENTATIONS).mean(axis=(2, 4)).reshape(len(images), -1)
