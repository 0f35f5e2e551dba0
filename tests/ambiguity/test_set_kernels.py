"""Kernels between bags, and the classifiers that others are compared with."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.ambiguity import BagKernelClassifier, Bags, bag_statistics, median_gaussian, set_kernel
from kernelweave.kernels import Gaussian, KernelBank, Linear, Normalised, Polynomial, Repaired
from kernelweave.machines import SquaredHinge

GAUSSIAN = Gaussian(gamma=0.5)


@parametrize_with_checks([BagKernelClassifier(), BagKernelClassifier("statistics"), BagKernelClassifier(power=3.0)])
def test_sklearn_compatible(estimator: BagKernelClassifier, check: Any) -> None:
    check(estimator)


def naive(a: list[NDArray], b: list[NDArray], normalise: str | None, power: float) -> NDArray:
    """The set kernel as it is written."""

    def total(x: NDArray, z: NDArray) -> float:
        return sum(np.exp(-0.5 * np.sum((u - v) ** 2)) ** power for u in x for v in z)

    K = np.array([[total(x, z) for z in b] for x in a])
    if normalise == "cosine":
        return K / np.sqrt(np.outer([total(x, x) for x in a], [total(z, z) for z in b]))
    return K / np.outer([len(x) for x in a], [len(z) for z in b]) if normalise == "mean" else K


@pytest.mark.parametrize("normalise", ["cosine", "mean", None])
@pytest.mark.parametrize("power", [1.0, 3.0])
def test_agrees_with_the_sum_as_it_is_written(normalise: str | None, power: float) -> None:
    a, b = (kw.datasets.make_bags(n, random_state=n)[0] for n in (8, 5))
    np.testing.assert_allclose(set_kernel(a, b, GAUSSIAN, normalise, power), naive(a, b, normalise, power), rtol=1e-10)
    K = set_kernel(a, kernel=GAUSSIAN, normalise=normalise, power=power)
    np.testing.assert_allclose(K, naive(a, a, normalise, power), rtol=1e-10)
    assert np.linalg.eigvalsh(K)[0] > -1e-10


def test_a_linear_set_kernel_is_that_of_the_sums() -> None:
    bags = kw.datasets.make_bags(6, random_state=0)[0]
    sums = np.array([bag.sum(axis=0) for bag in bags])
    np.testing.assert_allclose(set_kernel(bags, kernel=Linear(), normalise=None), sums @ sums.T, rtol=1e-10)


def test_the_default_kernel_and_several() -> None:
    bags = kw.datasets.make_bags(6, random_state=0)[0]
    width = median_gaussian(Bags(bags).instances)
    np.testing.assert_array_equal(set_kernel(bags), set_kernel(bags, kernel=width))
    two = set_kernel(bags, kernel=[GAUSSIAN, Linear()], normalise=None)
    parts = [set_kernel(bags, kernel=kernel, normalise=None) for kernel in (GAUSSIAN, Linear())]
    np.testing.assert_allclose(two, np.mean(parts, axis=0), rtol=1e-10)


def test_widths_that_depend_on_data_come_from_the_first_bags() -> None:
    a, b = (kw.datasets.make_bags(n, random_state=n)[0] for n in (8, 5))
    X = Bags(a).instances
    mean = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(len(X), 1)].mean()
    np.testing.assert_allclose(set_kernel(a, b, Gaussian()), set_kernel(a, b, Gaussian(gamma=1 / mean)), rtol=1e-6)


def test_statistics() -> None:
    bags, _, _ = kw.datasets.make_bags(7, random_state=0)
    expected = [np.concatenate([bag.min(0), bag.max(0), bag.mean(0)]) for bag in bags]
    np.testing.assert_allclose(bag_statistics(bags), expected)
    together = Bags(bags)
    np.testing.assert_array_equal(bag_statistics(together.instances, together.bag_of), bag_statistics(bags))
    with pytest.raises(TypeError, match="taken of features"):
        bag_statistics(kw.KernelStack(np.eye(3)))


@pytest.mark.parametrize("normalise", ["cosine", "mean", None])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_classifier_is_a_machine_on_the_set_kernel(normalise: str | None, power: float) -> None:
    bags, y, _ = kw.datasets.make_bags(20, random_state=0)
    new, _, _ = kw.datasets.make_bags(9, random_state=1)
    bank = KernelBank(GAUSSIAN, dtype="float64")
    clf = BagKernelClassifier(kernels=bank, normalise=normalise, power=power, C=5.0, tol=1e-11).fit(bags, y)
    K, cross = (set_kernel(x, bags, GAUSSIAN, normalise, power) for x in (bags, new))
    plain = SquaredHinge(5.0).solve(K, np.where(y == 1, 1.0, -1.0)[:, None], accuracy=1e-11)
    assert clf.objective_ == pytest.approx(plain.primal, rel=1e-8) and abs(clf.gap_) <= 1e-11
    np.testing.assert_allclose(clf.decision_function(new), cross @ plain.coef[:, 0] + plain.intercept, atol=1e-5)


def test_the_statistics_kernel_is_a_machine_on_statistics() -> None:
    bags, y, _ = kw.datasets.make_bags(20, random_state=0)
    clf = BagKernelClassifier("statistics", C=5.0).fit(bags, y)
    rows = BagKernelClassifier(C=5.0).fit(bag_statistics(bags), y)
    np.testing.assert_array_equal(clf.decision_function(bags), rows.decision_function(bag_statistics(bags)))


def test_bags_of_one_instance_are_an_ordinary_machine() -> None:
    X = np.random.default_rng(0).standard_normal((30, 2))
    y = (X[:, 0] > 0.2).astype(int)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    clf = BagKernelClassifier(kernels=KernelBank(GAUSSIAN, dtype="float64"), tol=1e-11).fit(X, y)
    plain = SquaredHinge().solve(K, np.where(y == 1, 1.0, -1.0)[:, None], accuracy=1e-11)
    assert clf.objective_ == pytest.approx(plain.primal, rel=1e-8)


def test_views_groups_weights_and_pickles() -> None:
    bags, y, _ = kw.datasets.make_bags(20, random_state=0)
    together = Bags(bags)
    views = Bags(kw.Views({"all": together.instances, "first": together.instances[:, :1]}), together.bag_of)
    clf = BagKernelClassifier(C=10.0).fit(views, y)
    assert clf.decision_function(views).shape == (20,)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(clf)).decision_function(views[[3, 1]]), clf.decision_function(views[[3, 1]])
    )
    rows = BagKernelClassifier(C=10.0, kernels=GAUSSIAN).fit(together.instances, y[together.bag_of], together.bag_of)
    listed = BagKernelClassifier(C=10.0, kernels=GAUSSIAN).fit(bags, y)
    np.testing.assert_array_equal(
        rows.decision_function(together.instances, together.bag_of), listed.decision_function(bags)
    )
    twice = [*range(20), 3, 4]
    repeated = BagKernelClassifier(C=10.0, kernels=GAUSSIAN).fit([bags[i] for i in twice], y[twice])
    weighted = BagKernelClassifier(C=10.0, kernels=GAUSSIAN).fit(bags, y, bag_weight=np.bincount(twice))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)


def with_a_missing_view(seed: int, share: float) -> tuple[Bags, NDArray]:
    bags, y, _ = kw.datasets.make_bags(20, random_state=seed)
    together = Bags(bags)
    first = together.instances[:, :1].copy()
    first[np.random.default_rng(seed).random(len(first)) < share] = np.nan
    return Bags(kw.Views({"all": together.instances, "first": first}), together.bag_of), y


@pytest.mark.parametrize("missing", ["zero", "rescale"])
@pytest.mark.parametrize("normalise", ["cosine", "mean", None])
@pytest.mark.filterwarnings("error")
def test_views_that_instances_lack_are_those_of_either_bags(missing: str, normalise: str | None) -> None:
    (a, y), (b, _) = (with_a_missing_view(seed, share) for seed, share in ((0, 0.3), (1, 0.6)))
    spec = KernelBank(GAUSSIAN, missing=missing, dtype="float64")

    def completed(left: Bags, right: Bags) -> NDArray:
        """The mean of the kernels of both views, as they are written: zero where an instance lacks the view."""
        there = [side.instances.present("first") for side in (left, right)]
        K = np.zeros((left.n_instances, right.n_instances))
        for view, both in (("all", 1.0), ("first", np.outer(*there))):
            x, z = left.instances[view], right.instances[view]
            K += both * np.exp(-0.5 * ((x[:, None] - z[None]) ** 2).sum(axis=2))
        K *= np.outer(*(np.sqrt(2.0 / (1 + has)) for has in there)) if missing == "rescale" else 1.0
        return left.reduce(np.add, right.reduce(np.add, 0.5 * K.T).T)

    expected = completed(a, b)
    if normalise == "cosine":
        expected /= np.sqrt(np.outer(completed(a, a).diagonal(), completed(b, b).diagonal()))
    elif normalise == "mean":
        expected /= np.outer(a.sizes, b.sizes)
    np.testing.assert_allclose(set_kernel(a, b, spec, normalise), expected, rtol=1e-9)

    clf = BagKernelClassifier(kernels=spec, normalise=normalise).fit(a, y)
    scores = expected.T[:, clf.support_] @ clf.dual_coef_[0] + clf.intercept_
    np.testing.assert_allclose(clf.decision_function(b), scores, rtol=1e-8, atol=1e-12)


def test_kernels_in_low_rank() -> None:
    a, b = (kw.datasets.make_bags(n, random_state=n)[0] for n in (20, 5))
    rank = Bags(a).n_instances  # every instance is a landmark: what is compared with them is exact
    low = KernelBank([Linear(), GAUSSIAN], rank=rank, dtype="float64")
    exact = set_kernel(a, b, [Linear(), GAUSSIAN], normalise=None)
    np.testing.assert_allclose(set_kernel(a, b, low, normalise=None), exact, rtol=1e-6)
    plain = KernelBank(Linear(), rank=2, dtype="float64")  # both columns are the features: all is exact
    np.testing.assert_allclose(set_kernel(a, b, plain), set_kernel(a, b, Linear()), rtol=1e-10)
    with pytest.raises(TypeError, match="without rank and device"):
        BagKernelClassifier(kernels=plain).fit(a, np.arange(20) % 2)


def test_warns_where_costs_are_too_large_for_the_precision() -> None:
    bags, y, _ = kw.datasets.make_bags(n_bags=40, random_state=0)
    large = KernelBank([Polynomial(3)], dtype="float32")
    with pytest.warns(ConvergenceWarning, match="relative duality gap of .*, short of 1e-08.*dtype='float64'"):
        clf = BagKernelClassifier(kernels=large, normalise="mean", C=1e9).fit([1e3 * bag for bag in bags], y)
    assert abs(clf.gap_) > 1e-8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"of": "means"}, "of must be 'instances' or 'statistics', got 'means'"),
        ({"normalise": "l2"}, "normalise must be 'cosine', 'mean' or None, got 'l2'"),
        ({"power": 0.0}, "power must be positive"),
        ({"power": "2"}, "power must be positive and finite, got '2'"),
        ({"tol": np.nan}, "tol must be positive, got nan"),
        ({"C": -1.0}, "C must be positive"),
        (
            {"kernels": Linear(), "power": 0.5},
            "power=0.5 of the kernel value -.* a whole power for kernels with negative",
        ),
        ({"kernels": Polynomial(3, offset=1e3), "power": 200.0}, "is not a finite number"),
        ({"weights": "l1"}, "does not learn them"),
        ({"kernels": "precomputed"}, "needs instances as features"),
        ({"kernels": Normalised(Linear(), "center")}, "depend on two samples only"),
        ({"kernels": Repaired(Linear(), "clip")}, "depend on two samples only"),
        ({"kernels": Polynomial(3, offset=0.0)}, "has no cosine: use normalise='mean'"),
    ],
)
def test_refuses(settings: dict[str, Any], message: str) -> None:
    bags = [np.ones((2, 2)), np.array([[1.0, 1.0], [-1.0, -1.0]]), -np.ones((3, 2)), np.array([[2.0, 0.5]])]
    if "kernels" in settings and settings["kernels"] == "precomputed":
        with pytest.raises(ValueError, match=message):
            BagKernelClassifier(**settings).fit(np.eye(4), [0, 1, 1, 0])
        return
    with pytest.raises((TypeError, ValueError), match=message):
        BagKernelClassifier(**settings).fit(bags, [0, 1, 1, 0])
