"""Alignment and polarisation against plain matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import kernelweave as kw
from kernelweave.kernels import Gaussian, KernelBank, Linear, Polynomial, alignment, polarisation
from kernelweave.kernels.energies import Duals, Exponential


def problem(n_classes=2, n=60):
    return kw.datasets.make_views(n, n_classes=n_classes, n_useful=1, n_redundant=0, n_noise=2, random_state=0)


def grams(bank):
    return [bank.gram(j).astype(float) for j in range(bank.n_kernels)]


def targets(y):
    classes = np.unique(y)
    columns = [np.where(y == c, 1.0, -1.0) for c in (classes[1:] if len(classes) == 2 else classes)]
    return sum(np.outer(column, column) for column in columns)


def cosine(A, B):
    return float(np.vdot(A, B) / np.linalg.norm(A) / np.linalg.norm(B))


@pytest.mark.parametrize("storage", ["packed", "recompute"])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("centered", [True, False])
def test_alignment_is_the_cosine_of_two_matrices(n_classes, centered, storage, monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.aligned._BLOCK_BYTES", 8 * 9 * 60 * 7)  # seven rows at a time
    views, y = problem(n_classes)
    bank = KernelBank([Linear(), Gaussian(), Polynomial(3)], storage=storage).build(views)
    H = np.eye(len(y)) - 1.0 / len(y) if centered else np.eye(len(y))
    T = H @ targets(y) @ H
    expected = [cosine(H @ K @ H, T) for K in grams(bank)]
    np.testing.assert_allclose(alignment(bank, y, centered), expected, rtol=1e-5)


def test_two_classes_by_the_formula_of_the_books():
    views, y = problem()
    bank = KernelBank(Gaussian(), dtype="float64").build(views)
    sign = np.where(y == np.unique(y)[1], 1.0, -1.0)
    for K, found, polarised in zip(grams(bank), alignment(bank, y, False), polarisation(bank, y), strict=True):
        assert found == pytest.approx(sign @ K @ sign / (len(y) * np.linalg.norm(K)))
        assert polarised == pytest.approx(sign @ K @ sign / len(y) ** 2)


def test_polarisation_is_twice_the_energy_of_equal_duals():
    views, y = problem()
    sign = np.where(y == np.unique(y)[1], 1.0, -1.0)
    rows = views["useful0"]
    bank = KernelBank({"useful0": Gaussian(gamma=0.3)}, dtype="float64").build(views)
    energy = Exponential(pdist(rows, "sqeuclidean"), Duals(sign[:, None] / len(y)), 1.0)
    P, N = energy.parts(0.3)
    assert polarisation(bank, y)[0] == pytest.approx(2 * (P[0] - N[0]))


def test_the_kernel_of_the_targets_is_aligned_and_a_constant_is_not():
    y = np.repeat([0, 1], [10, 30])
    sign = np.where(y == 1, 1.0, -1.0)
    stack = np.stack(
        [np.outer(sign, sign), np.full((40, 40), 3.0), 1e6 + 1e-3 * np.outer(sign, sign), np.zeros((40, 40))]
    )
    bank = KernelBank("precomputed", dtype="float64", check="never").build(stack)
    np.testing.assert_allclose(alignment(bank, y), [1.0, 0.0, 1.0, 0.0], atol=1e-6)
    # Without centring, a constant looks half as good as the targets: (30 - 10)^2 / 40^2.
    np.testing.assert_allclose(alignment(bank, y, centered=False)[:2], [1.0, 0.25])


def test_columns_of_targets_are_taken_as_they_are():
    views, y = problem(3)
    bank = KernelBank(Gaussian()).build(views)
    columns = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    np.testing.assert_allclose(alignment(bank, columns), alignment(bank, y))
    numbers = np.random.default_rng(0).normal(size=(len(y), 1))
    np.testing.assert_allclose(alignment(bank, 7.0 * numbers + 3.0), alignment(bank, numbers), rtol=1e-9)


def test_useful_kernels_come_first():
    views, y = problem()
    found = alignment(KernelBank(Gaussian()).build(views), y)
    assert found.argmax() == views.names.index("useful0")
    assert np.all((found >= 0) & (found <= 1))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(59), r"y must be 60 classes, .* got shape \(59,\)"),
        (np.zeros((60, 2, 2)), "y must be 60 classes"),
        (np.zeros(60), "only one class, 0.0"),
        (np.ones((60, 2)), "the same for all samples"),
        (np.full((60, 1), np.nan), "NaN or infinity"),
    ],
)
def test_refuses(y, message):
    views, _ = problem()
    with pytest.raises(ValueError, match=message):
        alignment(KernelBank(Gaussian()).build(views), y)
