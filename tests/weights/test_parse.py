"""What users may write for ``weights=``."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.weights import (
    Alignment,
    Average,
    Best,
    Entropy,
    Fixed,
    Grouped,
    LpBall,
    Simplex,
    Sum,
    parse_weights,
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("l1", Simplex()),
        ("L1", Simplex()),
        ("l1.0", Simplex()),
        ("l2", LpBall(2)),
        ("l4", LpBall(4)),
        ("l1.5", LpBall(1.5)),
        ("linf", LpBall(np.inf)),
        ("average", Average()),
        ("sum", Sum()),
        ("best", Best()),
        ("alignment", Alignment()),
        ("entropy", Entropy()),
        ([1, 2.5], Fixed([1.0, 2.5])),
        ((0.5, 0.5), Fixed([0.5, 0.5])),
        (np.array([0.0, 1.0], dtype=np.float32), Fixed([0.0, 1.0])),
    ],
    ids=repr,
)
def test_specifications(spec, expected) -> None:
    assert parse_weights(spec) == expected


def test_a_weight_set_is_returned_as_it_is() -> None:
    weight_set = Grouped([0, 0, 1], r=2)
    assert parse_weights(weight_set) is weight_set


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("averge", ValueError, "'averge' is not known. Did you mean 'average'.*'l1'.*WeightSet"),
        ("l0.5", ValueError, "not convex"),
        ("lp", ValueError, "is not known"),
        ("", ValueError, "is not known"),
        (2, TypeError, "weights=2 of type int.*'l2'"),
        (None, TypeError, "NoneType"),
        (np.array(2.0), TypeError, "ndarray"),
        (Simplex, TypeError, "the class Simplex; give an instance"),
        ([1, -1], ValueError, "none negative"),
        (["sift", "gist"], ValueError, "Fixed: weights must be numbers"),
    ],
)
def test_bad_specifications_list_the_choices(spec, error, words: str) -> None:
    with pytest.raises(error, match=words):
        parse_weights(spec)
