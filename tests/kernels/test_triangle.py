"""Loops over packed triangles against plain ones."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose

from kernelweave.kernels import triangle

NUMBERS = st.floats(-10, 10, width=32)


@st.composite
def packed_banks(draw):
    n = draw(st.integers(1, 40))
    s = draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    data = np.random.default_rng(seed).normal(size=(s, triangle.packed_length(n))).astype(dtype)
    slots = np.array(draw(st.lists(st.integers(0, s - 1), min_size=1, max_size=9)))
    return n, data, slots


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 30, 300, 513])  # the latter two need more than one block of rows
def test_products_of_many_columns(n, dtype):
    rng = np.random.default_rng(n)
    packed = rng.standard_normal((3, triangle.packed_length(n))).astype(dtype)
    slots = np.array([2, 0])
    V = rng.standard_normal((n, triangle.MANY_COLUMNS + 1))
    V[::3] = 0.0
    samples = rng.integers(0, n, n // 2 + 1)
    stack = np.stack([naive.unpack(packed[slot], n) for slot in slots])
    accuracy = 50 * np.sqrt(n) * np.finfo(dtype).eps
    assert_allclose(triangle.products(packed, slots, V, samples), naive.products(stack, V, samples), atol=accuracy)


@settings(max_examples=60, deadline=None)
@given(packed_banks(), st.data())
def test_packed_equals_naive(bank, data):
    n, packed, slots = bank
    stack = np.stack([naive.unpack(packed[slot], n) for slot in slots])
    close = {"rtol": 1e-4, "atol": 1e-4} if packed.dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}

    weights = data.draw(hnp.arrays(packed.dtype, len(slots), elements=NUMBERS), label="weights")
    out = np.empty((n, n), packed.dtype)
    triangle.combine(packed, slots, weights, out)
    assert_allclose(out, naive.combine(stack, weights), **close)
    assert (out == out.T).all()

    m = data.draw(st.integers(1, 6), label="columns")
    V = data.draw(hnp.arrays(np.float64, (n, m), elements=NUMBERS, fill=st.just(0.0)), label="V")
    scale = 1 + np.abs(V).sum() ** 2
    assert_allclose(triangle.quadratics(packed, slots, V) / scale, naive.quadratics(stack, V) / scale, atol=1e-13)

    samples = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=n), label="samples"), dtype=np.intp)
    result = triangle.products(packed, slots, V, samples)
    assert_allclose(result / scale, naive.products(stack, V, samples) / scale, atol=1e-13)

    part = np.empty((len(slots), triangle.packed_length(len(samples))), packed.dtype)
    triangle.restrict(packed, slots, samples, part)
    square = np.empty((len(samples), len(samples)))
    for j, K in enumerate(stack):
        assert_allclose(naive.unpack(part[j], len(samples)), K[np.ix_(samples, samples)])
        triangle.gather(packed[slots[j]], samples, square)
        assert_allclose(square, K[np.ix_(samples, samples)])
    rows = np.empty((len(slots), len(samples), n), packed.dtype)
    triangle.rows(packed, slots, samples, rows)
    assert_allclose(rows, stack[:, samples])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 200, 1100])
def test_sizes_around_the_blocks(n, dtype):
    """1100 rows: a block of sixteen is longer than a chunk."""
    rng = np.random.default_rng(n)
    packed = rng.random((5, triangle.packed_length(n))).astype(dtype)
    out = np.empty((n, n), dtype)
    triangle.combine(packed, np.array([4, 0, 2]), np.array([1, 2, 3], dtype), out)
    expected = packed[4] + 2 * packed[0] + 3 * packed[2]
    assert_allclose(out[np.tril_indices(n)], expected, rtol=1e-6)
    assert (out == out.T).all()
    v = rng.normal(size=(n, 2))
    v[n // 3 : n // 2] = 0.0
    gram = np.empty((n, n))
    triangle.gather(packed[3], np.arange(n), gram)
    assert_allclose(triangle.quadratics(packed, np.array([3]), v), naive.quadratics(gram[None], v), rtol=1e-9)
    samples = rng.permutation(n)[: n // 2 + 1]
    assert_allclose(
        triangle.products(packed, np.array([3]), v, samples), naive.products(gram[None], v, samples), atol=1e-9 * n
    )


@pytest.mark.parametrize("n", [1, 2, 9])
def test_positions_and_packing(n):
    K = np.arange(n * n, dtype=float).reshape(n, n)
    K = K + K.T
    packed = np.empty(triangle.packed_length(n))
    triangle.pack_rows(K[: n // 2, : n // 2 + 1], 0, packed)
    triangle.pack_rows(K[n // 2 :], n // 2, packed)
    assert (packed == naive.pack(K)).all()
    assert (packed[triangle.diagonal_positions(n)] == np.diag(K)).all()
    sums = np.empty(n)
    triangle.row_sums(packed, sums)
    assert_allclose(sums, K.sum(axis=1))
    assert_allclose(triangle.sum_and_squares(packed), [packed.sum(), (packed**2).sum()])
