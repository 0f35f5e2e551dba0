"""Families of kernels: energies and gradients against plain formulas, and the kernels that come of parameters."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from kernelweave.kernels import (
    ChiSquared,
    ChiSquaredGaussian,
    ChiSquaredGaussianFamily,
    DistanceProductFamily,
    FiniteFamily,
    Gaussian,
    GaussianFamily,
    KernelBank,
    Linear,
    LinearMapFamily,
    ParametricFamily,
    Polynomial,
    PolynomialFamily,
    Precomputed,
    Product,
    SampledFamily,
    Scaled,
)
from kernelweave.kernels.binning import in_bins
from kernelweave.kernels.energies import Duals, Exponential
from kernelweave.kernels.families import BoxPiece, all_pieces
from kernelweave.kernels.fitting import Fitting
from kernelweave.kernels.storage import Memory, PackedBank
from kernelweave.views import KernelStack, Views

N, D = 24, 3


def features(seed=0):
    rng = np.random.default_rng(seed)
    return Views({"x": rng.standard_normal((N, D)), "h": rng.random((N, 4))})


def duals(m=1, seed=0):
    """Duals of m tasks, (N, m), with zeros among them."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, m)) * (rng.random((N, 1)) < 0.7)


def bank_of(items, views):
    """The bank of some items, in double precision."""
    fitting = Fitting(tuple(items), views, "float64", (), "never")
    data = Memory().allocate(len(items), N, np.dtype("float64"))
    nodes = fitting.run(lambda j, shared: data[j])
    names = tuple(item.name for item in items)
    return PackedBank(Memory(), data, np.arange(len(items)), names, nodes, views, np.arange(N), "float64", None)


def laplacian(A, B, theta):
    return np.exp(-theta[0] * np.abs(A[:, None, 0] - B[None, :, 0]) - theta[1] * np.abs(A[:, None, 1] - B[None, :, 1]))


def laplacian_gradient(A, B, theta, G):
    M = G * laplacian(A, B, theta)
    return np.array([-(M * np.abs(A[:, None, d] - B[None, :, d])).sum() for d in range(2)])


def blend(A, B, theta):
    """Chi-squared at q = -1, Gaussian at q = 0, on non-negative features."""
    total = A[:, None] + B[None]
    return np.exp(-(np.where(total > 0, total, 1.0) ** theta[0] * (A[:, None] - B[None]) ** 2).sum(axis=2))


BOXES = {
    "single": (GaussianFamily("single"), "x"),
    "separate": (GaussianFamily("separate"), "x"),
    "product": (GaussianFamily("product"), "x"),
    "polynomial": (PolynomialFamily((1, 2, 3), "single"), "x"),
    "polynomials": (PolynomialFamily((1, 3), "product"), "x"),
    "distances": (DistanceProductFamily({"x": "euclidean", "h": "chi2"}), ""),
    "cityblock": (DistanceProductFamily("cityblock"), ""),
    "map": (LinearMapFamily(largest=9.0), "x"),
    "maps": (LinearMapFamily(rank=2, largest=9.0), "x"),
    "powers": (ChiSquaredGaussianFamily((-1.0, -0.3, 0.0)), "h"),
    "functions": (ParametricFamily(laplacian, laplacian_gradient, (0.01, 0.01), (5.0, 5.0)), "x"),
    "blend": (ParametricFamily(blend, None, (-1.0,), (0.0,)), "h"),
}


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("m", [1, 3])
def test_energy_is_that_of_the_kernel_a_bank_makes(name, m):
    """The energy that a search climbs is half the quadratic form of the kernel that is then added."""
    family, view = BOXES[name]
    views, V, rng = features(), duals(m), np.random.default_rng(1)
    for piece in family.pieces(views, view):
        assert isinstance(piece, BoxPiece)
        energy = piece.energy(Duals(V))
        for theta in piece.low + rng.random((4, len(piece.low))) * (piece.high - piece.low) * [
            [1.0],
            [0.1],
            [0.01],
            [0],
        ]:
            expected = bank_of([piece.item(tuple(theta))], views).quadratics(V)[0]
            assert energy.value_and_gradient(theta)[0] == pytest.approx(expected, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("name", BOXES)
def test_gradient_is_that_of_differences(name):
    family, view = BOXES[name]
    V, rng = duals(2), np.random.default_rng(2)
    for piece in family.pieces(features(), view):
        energy, scale = piece.energy(Duals(V)), piece.high - piece.low
        theta = piece.low + (0.02 + 0.1 * rng.random(len(scale))) * scale
        gradient = energy.value_and_gradient(theta)[1]
        for d, width in enumerate(1e-5 * scale):
            step = np.zeros(len(scale))
            step[d] = width
            up, down = (energy.value_and_gradient(theta + sign * step)[0] for sign in (1, -1))
            assert gradient[d] == pytest.approx((up - down) / (2 * width), rel=1e-5, abs=1e-7)


def test_second_derivatives_are_those_of_differences():
    (piece,) = GaussianFamily("product", climb="newton").pieces(features(), "x")
    assert piece.newton
    energy, theta = piece.energy(Duals(duals(2))), np.array([0.3, 1.2, 0.05])
    H = energy.hessian(theta)
    np.testing.assert_allclose(H, H.T, rtol=1e-10)
    for d, step in enumerate(1e-5 * np.eye(D)):
        up, down = (energy.value_and_gradient(theta + sign * step)[1] for sign in (1, -1))
        np.testing.assert_allclose(H[d], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


def test_gaussian_energy_against_plain_sums():
    """The formula of the books, term by term: T = 1/2 sum_ij v_i v_j exp(-sum_d s_d (x_id - x_jd)^2)."""
    views, v = features(), duals()[:, 0]
    X, rates = views["x"], np.array([0.3, 0.0, 2.0])
    plain = 0.0
    slope = np.zeros(D)
    for i in range(N):
        for j in range(N):
            term = 0.5 * v[i] * v[j] * np.exp(-(rates * (X[i] - X[j]) ** 2).sum())
            plain += term
            slope -= term * (X[i] - X[j]) ** 2
    (piece,) = GaussianFamily("product").pieces(views, "x")
    value, gradient = piece.energy(Duals(v[:, None])).value_and_gradient(rates)
    assert value == pytest.approx(plain, rel=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-10)


def test_a_large_rate_is_the_unit_matrix():
    """Which is why the largest rate is a real choice."""
    (piece,) = GaussianFamily("single", largest=1e9).pieces(features(), "x")
    K = bank_of([piece.item((1e9,))], features()).gram(0)
    np.testing.assert_array_equal(K, np.eye(N))
    V = duals(2)
    assert piece.energy(Duals(V)).value_and_gradient(np.array([1e9]))[0] == pytest.approx(0.5 * (V**2).sum())


def test_parts_of_a_one_rate_energy():
    """T = P - N, both decreasing and convex, with the slope of N."""
    (piece,) = GaussianFamily("single").pieces(features(), "x")
    energy = piece.energy(Duals(duals()))
    grid = np.linspace(0.0, 3.0, 61)
    parts = np.array([energy.parts(s) for s in grid])  # (61, 2, 4)
    values = parts[:, 0, 0] - parts[:, 1, 0]
    np.testing.assert_allclose(values, [energy.value_and_gradient([s])[0] for s in grid], rtol=1e-12)
    for side in (0, 1):
        assert np.all(np.diff(parts[:, side, 0]) < 0)
        assert np.all(np.diff(parts[:, side, 0], 2) > 0)
        assert np.all(np.diff(parts[:, side, 3]) > 0)  # the bounds of branch and bound need that as well
        for order in (1, 2, 3):
            up, down = ([energy.parts(s + step)[side][order - 1] for s in grid] for step in (1e-5, -1e-5))
            np.testing.assert_allclose(parts[:, side, order], np.subtract(up, down) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("tolerated", [1.0, 1e-3, 1e-6])
def test_pairs_in_bins(tolerated):
    """Few bins stand for many pairs: both parts come out too small, never by more than was tolerated."""
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((400, 2)), rng.uniform(-1, 1, (400, 1))
    exact, binned = (Exponential(pdist(X, "sqeuclidean"), Duals(V), 30.0, error) for error in (0.0, tolerated))
    assert exact.error == 0.0 and binned.error == tolerated
    assert len(binned._up[0]) < 0.3 * len(exact._up[0])
    for s in (0.0, 1e-4, 0.01, 0.3, 1.0, 4.0, 7.0, 30.0):
        lost = [side[0] - other[0] for side, other in zip(exact.parts(s), binned.parts(s), strict=True)]
        assert min(lost) >= -1e-8 and sum(lost) <= tolerated


def test_points_of_a_bin_have_its_moments():
    """Two points stand for all pairs of a bin, to the third power of their distance."""
    rng = np.random.default_rng(0)
    D, c = rng.uniform(4.0, 4.99, 1000), rng.uniform(-1, 1, 1000)  # one bin: [4, 5)
    for (points, weights), side in zip(in_bins(D, c, 30.0, 0.25), (c > 0, c < 0), strict=True):
        assert len(points) == 2 and points.min() > 4.0 and points.max() < 5.0
        for power in range(4):
            assert weights @ points**power == pytest.approx(np.abs(c[side]) @ D[side] ** power, rel=1e-12)


def test_a_bin_of_equal_distances_is_that_distance():
    D, c = np.array([0.0, 0.0, 3.0, 3.0, 3.0, 700.0]), np.array([1.0, 2.0, 1.0, -1.0, 1.0, 5.0])
    (up, up_weights), (down, down_weights) = in_bins(D, c, 30.0, 2.0**-6)
    np.testing.assert_allclose(up, [0.0, 3.0, 700.0, 0.0, 3.0, 700.0], rtol=1e-14)
    np.testing.assert_allclose(up_weights.reshape(2, 3).sum(axis=0), [3.0, 2.0, 5.0])
    np.testing.assert_allclose(down, 3.0)
    assert down_weights.sum() == pytest.approx(1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["product", "polynomials", "distances", "maps", "powers"]))
def test_kernels_of_a_family_are_positive_with_unit_diagonal(seed, name):
    """So the scale of no kernel is larger than that of another."""
    family, view = BOXES[name]
    views = features(seed)
    rng = np.random.default_rng(seed)
    piece = family.pieces(views, view)[seed % 2 if name == "powers" else -1]
    theta = rng.random(len(piece.high)) ** 4 * piece.high
    K = bank_of([piece.item(tuple(theta))], views).gram(0)
    np.testing.assert_allclose(K.diagonal(), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-9


# --- Scaled -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(gamma=0.7), Gaussian(2.0), Polynomial(3), Linear()])
def test_scaled_is_the_kernel_of_scaled_features(kernel):
    views, rates = features(), (0.5, 0.0, 3.0)
    by_hand = Views({"x": views["x"] * np.sqrt(rates)})
    scaled = KernelBank({"x": Scaled(kernel, rates)}, dtype="float64").build(views)
    plain = KernelBank({"x": kernel}, dtype="float64").build(by_hand)
    np.testing.assert_allclose(scaled.gram(0), plain.gram(0), rtol=1e-10, atol=1e-12)
    new = features(1)
    cross = scaled.expansion([0], np.arange(5)).cross(new)
    expected = plain.expansion([0], np.arange(5)).cross(Views({"x": new["x"] * np.sqrt(rates)}))
    np.testing.assert_allclose(cross, expected, rtol=1e-10, atol=1e-12)


def test_scaled_refuses():
    with pytest.raises(ValueError, match="at least 0"):
        Scaled(Gaussian(), (1.0, -1.0))
    with pytest.raises(TypeError, match="such as Gaussian"):
        Scaled(Product(Gaussian(), Linear()), (1.0,))
    with pytest.raises(TypeError, match="precomputed"):
        Scaled(Precomputed(), (1.0,))
    with pytest.raises(ValueError, match="2 rates was given view 'x' of 3 columns"):
        KernelBank({"x": Scaled(Gaussian(), (1.0, 1.0))}).build(features())


def test_without_any_rate_a_kernel_is_constant():
    bank = KernelBank({"x": Scaled(Gaussian(gamma=1.0), (0.0,) * D)}, dtype="float64").build(features())
    np.testing.assert_array_equal(bank.gram(0), np.ones((N, N)))


# --- between chi-squared and Gaussian ---------------------------------------------------------------------------------


def test_ends_of_the_power_are_chi_squared_and_gaussian():
    views = features()
    kernels = [ChiSquaredGaussian(-1, gamma=0.7), ChiSquared(gamma=1.4), ChiSquaredGaussian(0.0, gamma=0.7)]
    bank = KernelBank({"h": [*kernels, Gaussian(gamma=0.7)]}, dtype="float64").build(views)
    chi, expected_chi, gauss, expected_gauss = (bank.gram(j) for j in range(4))
    np.testing.assert_allclose(chi, expected_chi, rtol=1e-12)
    np.testing.assert_allclose(gauss, expected_gauss, rtol=1e-12)


def test_a_power_between_is_the_function_it_says():
    views = features()
    bank = KernelBank({"h": ChiSquaredGaussian(-0.4, gamma=1.0)}, dtype="float64").build(views)
    expected = blend(views["h"], views["h"], [-0.4])
    np.testing.assert_allclose(bank.gram(0), expected, rtol=1e-12)
    new = features(1)
    cross = bank.expansion([0], np.arange(6)).cross(new)
    np.testing.assert_allclose(cross[0], blend(new["h"], views["h"][:6], [-0.4]), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(-1.0, 0.0), st.floats(-4.0, 3.0))
def test_every_power_is_positive(seed, power, scale):
    """At any rate, with zeros and equal rows among the samples."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.random((15, 2)) ** 3, 1) * 10.0 ** rng.uniform(-3, 3)
    K = KernelBank(ChiSquaredGaussian(power, gamma=10.0**scale), dtype="float64", check="never").build(X).gram(0)
    assert np.linalg.eigvalsh(K)[0] > -1e-10


def test_blends_refuse():
    for bad in (-1.5, 0.1, np.nan, "half", True):
        with pytest.raises(ValueError, match="power of ChiSquaredGaussian is a number from -1 to 0"):
            ChiSquaredGaussian(bad)
    with pytest.raises(ValueError, match="'x' has the negative value"):
        KernelBank({"x": ChiSquaredGaussian(-0.5)}).build(features())
    with pytest.raises(ValueError, match="'x' has the negative value"):
        ChiSquaredGaussianFamily().pieces(features(), "x")


# --- functions of a user ----------------------------------------------------------------------------------------------


def test_wrong_gradient_is_found_out():
    def wrong(A, B, theta, G):
        return laplacian_gradient(A, B, theta, G) * [1.0, 1.2]

    family = ParametricFamily(laplacian, wrong, (0.01, 0.01), (5.0, 5.0))
    with pytest.warns(UserWarning, match=r"wrong looks wrong: .* for parameter 1"):
        family.pieces(features(), "x")


def test_right_gradient_is_not_warned_about():
    family, view = BOXES["functions"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        family.pieces(features(), view)


def test_gradient_of_the_wrong_shape():
    family = ParametricFamily(laplacian, lambda A, B, theta, G: np.zeros(3), (0.01, 0.01), (5.0, 5.0))
    with pytest.raises(ValueError, match="must return 2 numbers"):
        family.pieces(features(), "x")


# --- pools ------------------------------------------------------------------------------------------------------------


def test_finite_family_scans_all():
    views, V = features(), duals()
    kernels = {"x": [Gaussian(0.5), Gaussian(2.0)], "h": Linear()}
    (piece,) = FiniteFamily(KernelBank(kernels, dtype="float64", normalise="trace")).pieces(views, "")
    thetas, energies, complete = piece.scan(V, [], np.random.default_rng(0))
    assert complete and thetas == [0, 1, 2]
    expected = KernelBank(kernels, dtype="float64", normalise="trace").build(views).quadratics(V)
    np.testing.assert_allclose(energies, expected, rtol=1e-10)
    np.testing.assert_allclose(bank_of([piece.item(j) for j in thetas], views).quadratics(V), expected, rtol=1e-10)


def test_finite_family_draws_some_and_keeps_the_known():
    (piece,) = FiniteFamily([Gaussian(1.0 + j) for j in range(20)], draws=4).pieces(features(), "")
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(10):
        thetas, energies, complete = piece.scan(duals(), [39], rng)
        assert 39 in thetas and 4 <= len(thetas) <= 5 and not complete and len(energies) == len(thetas)
        seen |= set(thetas)
    assert len(seen) > 15


def test_sampled_family_draws():
    family = SampledFamily(lambda rng: ("x", Gaussian(gamma=float(rng.uniform(0.1, 9)))), draws=7)
    (piece,) = family.pieces(features(), "")
    known = [("x", Gaussian(gamma=0.5))]
    thetas, energies, complete = piece.scan(duals(), known, np.random.default_rng(0))
    assert thetas[0] == known[0] and len(thetas) == 8 and not complete
    expected = bank_of([piece.item(theta) for theta in thetas], features()).quadratics(duals())
    np.testing.assert_allclose(energies, expected, rtol=1e-5)  # scanned in single precision
    bad = SampledFamily(lambda rng: ("nowhere", Gaussian()))
    with pytest.raises(ValueError, match="nowhere"):
        bad.pieces(features(), "")[0].scan(duals(), [], np.random.default_rng(0))


# --- which views, and bad input ---------------------------------------------------------------------------------------


def test_a_family_is_taken_on_every_view_or_on_those_named():
    views = features()
    assert len(all_pieces(GaussianFamily("single"), views)) == 2
    assert len(all_pieces(GaussianFamily("separate"), views)) == D + 4
    assert len(all_pieces([GaussianFamily("single"), DistanceProductFamily()], views)) == 3
    assert len(all_pieces({"h": [GaussianFamily(), PolynomialFamily((2,))]}, views)) == 2
    with pytest.raises(ValueError, match=r"views \['z'\]"):
        all_pieces({"z": GaussianFamily()}, views)
    with pytest.raises(TypeError, match="GaussianFamily"):
        all_pieces(Gaussian(), views)
    with pytest.raises(TypeError, match="FiniteFamily\\('precomputed'\\)"):
        all_pieces(GaussianFamily(), KernelStack(np.eye(4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianFamily("double"), "kind of GaussianFamily"),
        (lambda: GaussianFamily(largest=0.0), "largest of GaussianFamily"),
        (lambda: GaussianFamily("product", climb="bisection"), "climb of GaussianFamily"),
        (lambda: PolynomialFamily(()), "at least one degree"),
        (lambda: PolynomialFamily((0,)), "degree"),
        (lambda: PolynomialFamily(kind="separate"), "kind of PolynomialFamily"),
        (lambda: DistanceProductFamily("cosine"), "metrics of DistanceProductFamily"),
        (lambda: DistanceProductFamily({"z": "chi2"}).pieces(features(), ""), "names the views"),
        (lambda: ParametricFamily(laplacian, low=(1.0,), high=(0.0,)), "low below its high"),
        (lambda: ParametricFamily(laplacian, low=(0.0,), high=(1.0,), starts=((0.1, 0.2),)), "points of 1 numbers"),
        (lambda: FiniteFamily([Gaussian()], draws=0), "draws of FiniteFamily"),
        (lambda: LinearMapFamily(rank=0), "rank of LinearMapFamily"),
        (lambda: LinearMapFamily(largest=-1.0), "largest of LinearMapFamily"),
        (lambda: ChiSquaredGaussianFamily(()), "at least one power"),
        (lambda: ChiSquaredGaussianFamily((-2.0,)), "power of ChiSquaredGaussianFamily"),
    ],
)
def test_bad_families_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_things_that_are_no_functions_are_refused():
    for make in (lambda: ParametricFamily(3), lambda: ParametricFamily(laplacian, 3), lambda: SampledFamily(3)):
        with pytest.raises(TypeError, match="function"):
            make()
