"""What conjugate gradients of the ranking machines know of the kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelweave.machines import MLRL1, Solution
from kernelweave.machines.ranking_ascent import in_common


def few_directions(n, rank, rest, rng):
    """A kernel that is ``rank`` large directions and the same along all others."""
    directions, _ = np.linalg.qr(rng.normal(size=(n, rank)))
    return (directions * rng.uniform(10.0, 50.0, rank)) @ directions.T + rest * np.eye(n)


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 10))
def test_few_large_directions_are_found(seed, rank):
    K = few_directions(400, rank, 0.5, np.random.default_rng(seed))
    common, rest = in_common(K)
    # Some of the sixteen directions are none of the large ones, and take a little off the rest.
    assert rest == pytest.approx(0.5, rel=0.05)
    np.testing.assert_allclose(common @ common.T + rest * np.eye(400), K, atol=0.05)


def test_a_kernel_of_zeros_has_nothing_in_common():
    common, rest = in_common(np.zeros((30, 30)))
    assert rest > 0 and not common.any()


def test_one_sample_is_enough():
    common, rest = in_common(np.array([[2.0]]))
    assert common.shape == (1, 1) and rest > 0


def test_the_preconditioner_inverts_a_kernel_of_few_directions():
    """On the free samples of every label; then rows are balanced."""
    rng = np.random.default_rng(0)
    n, m = 80, 3
    machine = MLRL1(1.0, ridge=0.3)
    signs = np.where(rng.random((n, m)) < 0.5, 1.0, -1.0)
    signs[:, 0], signs[:, 1] = 1.0, -1.0
    K = few_directions(n, 3, 0.5, rng)
    work = machine._resume(K, signs, Solution(0.0 * signs, np.zeros(m), 0.0, 0.0, 0.0))
    work.B = np.where(rng.random((n, m)) < 0.7, 0.5 * signs, 0.0)  # those that are zero are at a bound
    face = machine._face(work, signs)
    free = work.B != 0
    P = np.where(free, rng.normal(size=(n, m)), 0.0)
    expected = np.zeros((n, m))
    common, rest = work.extra["common"], work.extra["rest"]
    model = common @ common.T + (rest + 0.3) * np.eye(n)
    for k in range(m):
        f = free[:, k]
        expected[f, k] = np.linalg.solve(model[np.ix_(f, f)], P[f, k])
    np.testing.assert_allclose(face.precondition(P), face.tangent(expected), atol=1e-10)
