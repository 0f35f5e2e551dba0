"""The geometric mean of a bank: the product kernel of the published comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, squareform

from kernelweave.kernels import ChiSquared, Gaussian, KernelBank, Laplacian, Linear, Product
from kernelweave.kernels.combined import geometric_mean

rng = np.random.default_rng(0)
VIEWS = {"a": rng.random((25, 4)), "b": rng.random((25, 3)), "c": rng.random((25, 6))}


def gram(kernels):
    return KernelBank(kernels, dtype="float64", check="always").build(VIEWS).gram(0)


def test_is_the_exponential_of_the_mean_scaled_distance():
    def scaled(D):
        return D / squareform(D, checks=False).mean()

    X, Y, Z = VIEWS.values()
    squared = scaled(cdist(X, X, "sqeuclidean"))
    chi2 = scaled((((Y[:, None] - Y) ** 2) / (Y[:, None] + Y)).sum(axis=2))
    city = cdist(Z, Z, "cityblock")
    city = city / np.sqrt((squareform(city) ** 2).mean())
    mean = geometric_mean({"a": Gaussian(), "b": ChiSquared(2.0), "c": Laplacian(metric="cityblock")})
    np.testing.assert_allclose(gram(mean), np.exp(-(squared + chi2 / 2 + city) / 3), atol=1e-12)


@pytest.mark.parametrize(
    "kernels",
    [
        {"a": [Gaussian(), Gaussian(gamma=2.0)], "b": ChiSquared(gamma=0.3), "c": Laplacian(0.5)},
        {"a": Gaussian(), "ab": Product({"a": Gaussian(3.0), "b": Laplacian(gamma=0.2)})},
    ],
)
def test_is_the_root_of_the_product(kernels):
    each = KernelBank(kernels, dtype="float64").build(VIEWS)
    Ks = np.stack([each.gram(j) for j in range(each.n_kernels)])
    np.testing.assert_allclose(gram(geometric_mean(kernels)), Ks.prod(axis=0) ** (1 / len(Ks)), atol=1e-12)


def test_equal_kernels_have_themselves_as_mean():
    np.testing.assert_allclose(gram(geometric_mean({"a": [ChiSquared()] * 4})), gram({"a": ChiSquared()}), atol=1e-12)


def test_of_a_bank_is_a_bank_with_its_settings():
    bank = KernelBank([Gaussian(), Gaussian(2.0)], columns={"left": slice(0, 2)}, dtype="float64")
    mean = geometric_mean(bank)
    assert (mean.columns, mean.dtype) == (bank.columns, "float64")
    built = mean.build(VIEWS["a"])
    each = bank.build(VIEWS["a"])
    np.testing.assert_allclose(built.gram(0), np.sqrt(each.gram(0) * each.gram(1)), atol=1e-12)


@pytest.mark.parametrize("kernels", [{"a": [Gaussian(), Linear()]}, [Linear()], {"a": 3.0}])
def test_refuses_kernels_without_roots(kernels):
    with pytest.raises(TypeError, match="not the exponential of a distance"):
        geometric_mean(kernels)


def test_refuses_precomputed_kernels():
    with pytest.raises(TypeError, match="'precomputed'"):
        geometric_mean(KernelBank("precomputed"))
