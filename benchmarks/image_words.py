"""The nearest of 1000 visual words beside SciPy and scikit-learn, in one run on one thread: medians and their ratio.

    python benchmarks/image_words.py

The descriptors are dense SIFT of a photograph that comes with scikit-learn; words are learned from smaller copies of it
and from another one. What is prepared once for a codebook (directions of the words; fitted estimators) is not timed on
either side. Times of ours and of theirs are taken in turns, so that a busy machine disturbs both alike. All searches
are exact: how many answers differ is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray
from rows import Row, medians, print_rows
from scipy.cluster.vq import vq
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.datasets import load_sample_images
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from kernelweave.images.bag import local_descriptors
from kernelweave.images.base import Array, Picture
from kernelweave.images.places import DenseGrid
from kernelweave.images.sift import SIFT
from kernelweave.images.words import KMeans, Prototypes, Words, nearest_words, principal_directions

REPEATS = 15
N_WORDS = 1000
REACH = 2.0


def dense_sift(rgb: NDArray, colour: str) -> Array:
    return local_descriptors(Picture(rgb), DenseGrid(step=8, radii=(8.0, 16.0)), SIFT(colour))[1]


def peers(words: Array) -> dict[str, Callable[[Array], NDArray]]:
    """What others have for it: from descriptors to numbers of words."""
    neighbours = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(words)
    clusters = SklearnKMeans(len(words), init=words, n_init=1, max_iter=1).fit(words)
    clusters.cluster_centers_ = words
    return {
        "scipy vq": lambda descriptors: vq(descriptors, words)[0],
        "sklearn KMeans.predict": clusters.predict,
        "sklearn pairwise_distances_argmin": lambda descriptors: pairwise_distances_argmin(descriptors, words),
        "sklearn NearestNeighbors": lambda descriptors: neighbours.kneighbors(descriptors, return_distance=False)[:, 0],
    }


def rows(recipe: Words, colour: str) -> Iterator[Row]:
    """One codebook, and the descriptors of one photograph."""
    photograph, another = load_sample_images().images
    smaller = [cv2.resize(photograph, None, fx=f, fy=f, interpolation=cv2.INTER_AREA) for f in (0.8, 0.65, 0.5)]
    samples = np.concatenate([dense_sift(rgb, colour) for rgb in [another, *smaller]])
    words = recipe.learn(samples, np.random.default_rng(0))
    directions = principal_directions(words)
    descriptors = dense_sift(photograph, colour)
    others = peers(words)
    ours, *theirs = medians(
        REPEATS,
        lambda: nearest_words(descriptors, words, directions=directions),
        *(lambda find=find: find(descriptors) for find in others.values()),
    )
    numbers = nearest_words(descriptors, words, directions=directions)[0][:, 0]
    what = f"{len(descriptors)} {colour} SIFT ({words.shape[1]}), {recipe.label} words"
    for (name, find), seconds in zip(others.items(), theirs, strict=True):
        yield Row(what, name, ours, seconds, REACH, f"{(find(descriptors) != numbers).sum()} different")


def main() -> None:
    """Print the table."""
    with threadpool_limits(limits=1):
        recipes = (KMeans(N_WORDS), Prototypes(N_WORDS))
        print_rows(row for recipe in recipes for colour in ("grey", "hsv") for row in rows(recipe, colour))


if __name__ == "__main__":
    main()
