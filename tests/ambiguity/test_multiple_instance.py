"""MIClassifier: special cases, invariances, the claims of its source on generated bags, use, and bad input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelweave as kw
from kernelweave.ambiguity import BagKFold, Bags, MIClassifier, median_gaussian
from kernelweave.kernels import Gaussian, Linear
from kernelweave.machines import SquaredHinge

GAUSSIAN = Gaussian(gamma=0.5)
WAYS = [
    ("instance", "alternation"),
    ("instance", "annealing"),
    ("instance", "alp"),
    ("instance", "single-instance"),
    ("witness", "alternation"),
    ("witness", "annealing"),
]
each_way = pytest.mark.parametrize(("scenario", "method"), WAYS)
#: Where annealing ends hot, nothing was decided by rounding: there is one optimum at these temperatures.
HOT = {"min_temperature": 5.0, "tol": 1e-10}


def toy(n_bags: int = 30, fraction: float = 0.5, seed: int = 0) -> tuple[list[NDArray], NDArray, NDArray]:
    return kw.datasets.make_bags(n_bags, fraction, random_state=seed)


def fitted(scenario: str, method: str, bags: Any, y: NDArray, **settings: Any) -> MIClassifier:
    given = {"C": 100.0, "D": 100.0, "kernels": GAUSSIAN, **settings}
    return MIClassifier(scenario, method, **given).fit(bags, y)


@parametrize_with_checks([MIClassifier(scenario, method) for scenario, method in WAYS])
def test_sklearn_compatible(estimator: MIClassifier, check: Any) -> None:
    """With plain rows and no groups every row is a bag of one instance."""
    check(estimator)


# -- special cases -----------------------------------------------------------------------------------------------------


@each_way
def test_bags_of_one_instance_are_an_ordinary_machine(scenario: str, method: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = (X[:, 0] + 0.5 * rng.standard_normal(40) > 0).astype(int)
    clf = fitted(scenario, method, X, y, C=3.0, kernels=kw.KernelBank(GAUSSIAN, dtype="float64"), tol=1e-11)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    plain = SquaredHinge(3.0).solve(K, np.where(y == 1, 1.0, -1.0)[:, None], accuracy=1e-11)
    # of bags of one instance, the cost of balance is a constant
    constant = 100.0 * 0.25 * y.sum() if method == "alp" else 0.0
    assert clf.objective_ - constant == pytest.approx(plain.primal, rel=1e-8)
    np.testing.assert_allclose(clf.decision_function(X), K @ plain.coef[:, 0] + plain.intercept, atol=1e-4)
    assert np.all(clf.p_[y == 1] == 1) and np.all(clf.instance_labels_ == np.where(y == 1, 1, -1))


def test_the_first_turn_of_alternation_is_the_single_instance_baseline() -> None:
    bags, y, _ = toy()
    single = fitted("instance", "single-instance", bags, y)
    assert single.n_svm_solves_ == 1 and single.positive_fraction_ == 1.0
    turns = fitted("instance", "alternation", bags, y)
    assert turns.temperature_path_["free_energy"][0] == pytest.approx(single.objective_, rel=1e-7)
    assert turns.objective_ <= single.objective_


def test_no_cost_of_balance_is_annealing() -> None:
    bags, y, _ = toy()
    plain, balanced = fitted("instance", "annealing", bags, y), fitted("instance", "alp", bags, y, D=0.0)
    np.testing.assert_array_equal(plain.instance_labels_, balanced.instance_labels_)
    assert plain.objective_ == balanced.objective_


# -- what is found is consistent ---------------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("fraction", [0.2, 0.8])
def test_fitted_attributes_fit_together(scenario: str, method: str, fraction: float) -> None:
    bags, y, _ = toy(fraction=fraction)
    together = Bags(bags)
    clf = fitted(scenario, method, together, y)
    positive = (y == 1)[together.bag_of]
    labels, scores = clf.instance_labels_, clf.instance_scores(together)
    assert np.all(labels[~positive] == -1) and np.all(clf.p_[~positive] == 0)
    assert np.all(np.isin(labels[positive], [1, -1] if scenario == "instance" else [1, 0]))
    assert np.all(together.reduce(np.maximum, labels)[y == 1] == 1)
    assert np.all(clf.witness_[y == 0] == -1)
    for i in np.flatnonzero(y):
        assert scores[clf.witness_[i]] == pytest.approx(scores[together.members(i)].max(), abs=1e-6)
    np.testing.assert_allclose(clf.decision_function(together), together.reduce(np.maximum, scores))
    np.testing.assert_array_equal(clf.predict_instances(together), (scores > 0).astype(int))
    assert abs(clf.gap_) <= clf.tol
    assert clf.temperature_path_["solves"].sum() in (clf.n_svm_solves_, clf.n_svm_solves_ - 1)
    if scenario == "instance" and method != "single-instance":
        loss = 100 * np.maximum(0, 1 - labels * scores) ** 2
        penalty = 0.0
        if method == "alp":
            counts = together.reduce(np.add, (labels == 1).astype(float))
            penalty = 100 * np.sum((counts - 0.5 * together.sizes)[y == 1] ** 2)
        else:  # a label is the sign of its score, but where a bag needs one
            sure = np.isin(together.bag_of, np.flatnonzero(together.reduce(np.maximum, scores) > 0))
            np.testing.assert_array_equal(labels[sure & positive] == 1, scores[sure & positive] > 0)
        norm = clf.dual_coef_[0] @ (scores[clf.support_] - clf.intercept_[0])
        assert clf.objective_ == pytest.approx(0.5 * norm + loss.sum() + penalty, rel=1e-4)


Pair = tuple[MIClassifier, MIClassifier]


def in_another_order(scenario: str, method: str, seed: int = 0, **settings: Any) -> Pair:
    bags, y, _ = toy(20, seed=seed)
    rng = np.random.default_rng(0)
    order = rng.permutation(20)
    shuffled = [rng.permutation(bags[i]) for i in order]
    return fitted(scenario, method, bags, y, **settings), fitted(scenario, method, shuffled, y[order], **settings)


def repeated_and_weighted(scenario: str, method: str, seed: int = 0, **settings: Any) -> Pair:
    bags, y, _ = toy(20, seed=seed)
    twice = [*range(20), 3, 4, 5]
    repeated = fitted(scenario, method, [bags[i] for i in twice], y[twice], **settings)
    weighted = clone(repeated).fit(bags, y, bag_weight=np.bincount(twice))
    return repeated, weighted


TWO_WAYS = pytest.mark.parametrize("pair", [in_another_order, repeated_and_weighted])


@each_way
@TWO_WAYS
def test_what_describes_the_same_bags_is_fitted_the_same(pair: Any, scenario: str, method: str) -> None:
    """The order of bags and of instances does not matter, and a bag twice is a bag of weight two."""
    clf, other = pair(scenario, method, **HOT)
    assert other.objective_ == pytest.approx(clf.objective_, rel=1e-8)
    bags = toy(20)[0]
    np.testing.assert_allclose(other.decision_function(bags), clf.decision_function(bags), atol=1e-4)


@pytest.mark.parametrize(("scenario", "method"), [way for way in WAYS if way[1] in ("annealing", "alp")])
@TWO_WAYS
def test_annealing_mostly_ends_the_same(pair: Any, scenario: str, method: str) -> None:
    """Among optima that are nearly as good, rounding may choose: in 2 of all 96 cases when written."""
    same = 0
    for seed in range(16):
        clf, other = pair(scenario, method, seed)
        same += abs(clf.objective_ - other.objective_) <= 1e-5 * clf.objective_
    assert same >= 12


def test_settings_in_any_precision() -> None:
    bags, y, _ = toy(20)
    settings = {"scenario": "instance", "method": "alp"}
    half = MIClassifier(**settings, C=np.float16(10), D=np.array(2.0), positive_fraction=np.float16(0.5)).fit(bags, y)
    whole = MIClassifier(**settings, C=10.0, D=2.0).fit(bags, y)
    np.testing.assert_array_equal(half.dual_coef_, whole.dual_coef_)
    assert half.score(bags, y, sample_weight=np.arange(20)) <= 1
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(3,\)"):
        half.score(bags, y, sample_weight=np.ones(3))


def test_classes_may_weigh_differently() -> None:
    bags, y, _ = toy()
    low, high = (
        fitted("witness", "annealing", bags, y, C=0.05, class_weight={1: weight}).decision_function(bags).mean()
        for weight in (0.2, 5.0)
    )
    assert low < high
    balanced = fitted("witness", "annealing", bags, y, class_weight="balanced")
    shares = len(y) / (2 * np.bincount(y))
    by_hand = fitted("witness", "annealing", bags, y, class_weight={0: shares[0], 1: shares[1]})
    np.testing.assert_array_equal(balanced.dual_coef_, by_hand.dual_coef_)


# -- the claims of the source, on generated bags -----------------------------------------------------------------------


def mean_over_runs(fraction: float, ways: dict[str, dict[str, Any]], runs: int = 6) -> dict[str, dict[str, float]]:
    """Bag error and instance error on test bags, share of positives and objective, by way."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for run in range(runs):
        bags, y, _ = toy(30, fraction, run)
        test, test_y, inside = toy(100, fraction, 1000 + run)
        for name, settings in ways.items():
            clf = MIClassifier(C=100.0, kernels=GAUSSIAN, **settings).fit(bags, y)
            errors = 1 - clf.score(test, test_y), np.mean(clf.predict_instances(test) != inside)
            found[name].append((*errors, clf.positive_fraction_, clf.objective_))
    names = ("bag", "instance", "positive", "objective")
    return {way: dict(zip(names, np.mean(rows, axis=0), strict=True)) for way, rows in found.items()}


def test_few_positives_need_annealing() -> None:
    """Alternation stays where it begins, near all positive; annealing finds far better optima with few positives."""
    ways: dict[str, dict[str, Any]] = {
        "turns": {"scenario": "instance", "method": "alternation"},
        "cooled": {"scenario": "instance", "method": "annealing"},
        "witness": {"scenario": "witness", "method": "annealing"},
    }
    mean = mean_over_runs(0.1, ways)  # 17 % of the instances of positive bags are positive
    assert mean["turns"]["bag"] > 0.3 and mean["cooled"]["bag"] < 0.25 and mean["witness"]["bag"] < 0.25
    assert mean["turns"]["positive"] > 0.4 and mean["cooled"]["positive"] < 0.3
    assert mean["cooled"]["objective"] < 0.2 * mean["turns"]["objective"]
    assert mean["cooled"]["instance"] < 0.1


def test_balance_lies_between_and_finds_the_instances() -> None:
    ways: dict[str, dict[str, Any]] = {
        "turns": {"scenario": "instance", "method": "alternation"},
        "cooled": {"scenario": "instance", "method": "annealing"},
        "balanced": {"scenario": "instance", "method": "alp", "D": 100.0, "positive_fraction": 0.8},
    }
    mean = mean_over_runs(0.8, ways)  # 87 % are positive
    assert mean["cooled"]["positive"] < 0.7 < mean["balanced"]["positive"] <= mean["turns"]["positive"]
    assert mean["balanced"]["instance"] < 0.5 * mean["cooled"]["instance"]


@pytest.mark.parametrize("seed", range(6))
def test_annealing_keeps_no_witness_that_it_has_given_up(seed: int) -> None:
    """One on its way out would count as a witness if cooling ended too early, and cost far more than it should."""
    bags, y, _ = toy(fraction=1.0, seed=seed)
    cooled, turned = (fitted("witness", method, bags, y) for method in ("annealing", "alternation"))
    assert cooled.objective_ <= 1.3 * turned.objective_
    together = Bags(bags)
    scores, kept = cooled.instance_scores(together), cooled.instance_labels_ == 1
    loss = np.maximum(0, 1 - scores) ** 2
    least = together.reduce(np.minimum, loss)[together.bag_of]
    np.testing.assert_allclose(loss[kept], least[kept], atol=1e-3)


def test_witnesses_find_bags_but_not_all_positives() -> None:
    """The more positives, the easier the bags and the more instances are missed; annealing changes little."""
    ways: dict[str, dict[str, Any]] = {
        "cold": {"scenario": "witness", "method": "annealing", "initial_temperature": 1e-8},
        "cooled": {"scenario": "witness", "method": "annealing"},
    }
    few, many = mean_over_runs(0.3, ways, 4), mean_over_runs(1.0, ways, 4)
    for way in ways:
        assert many[way]["bag"] < few[way]["bag"] and many[way]["instance"] > few[way]["instance"]
        assert many[way]["positive"] < 0.85
    assert abs(few["cold"]["bag"] - few["cooled"]["bag"]) < 0.07
    assert abs(many["cold"]["bag"] - many["cooled"]["bag"]) < 0.07


# -- use ---------------------------------------------------------------------------------------------------------------


def test_all_forms_of_the_same_bags() -> None:
    bags, y, _ = toy(20)
    together = Bags(bags)
    y_rows, groups = y[together.bag_of], [f"bag {i}" for i in together.bag_of]
    clf = fitted("witness", "alternation", bags, y)
    expected = clf.decision_function(bags)
    for X, labels, ids in ((together, y, None), (together.instances, y, groups), (together.instances, y_rows, groups)):
        other = clone(clf).fit(X, labels, ids)
        np.testing.assert_array_equal(other.decision_function(X, ids), expected)
        assert other.score(X, labels, groups=ids) == clf.score(bags, y)
        np.testing.assert_array_equal(other.predict(X, ids), clf.predict(bags))


@pytest.mark.parametrize("scenario", ["instance", "witness"])
def test_precomputed_kernels(scenario: str) -> None:
    bags, y, _ = toy(20)
    together = Bags(bags)
    K = np.exp(-0.5 * ((together.instances[:, None] - together.instances[None]) ** 2).sum(axis=2))
    features = fitted(scenario, "annealing", bags, y)
    matrix = fitted(scenario, "annealing", Bags(K, together.bag_of), y, kernels="precomputed")
    stack = fitted(scenario, "annealing", Bags(kw.KernelStack(K), together.bag_of), y, kernels="precomputed")
    expected = features.decision_function(bags)
    np.testing.assert_allclose(matrix.decision_function(Bags(K, together.bag_of)), expected, atol=1e-2)
    np.testing.assert_array_equal(
        stack.decision_function(Bags(kw.KernelStack(K), together.bag_of)),
        matrix.decision_function(Bags(K, together.bag_of)),
    )
    part = Bags(kw.KernelStack(K), together.bag_of)[[4, 2]]
    np.testing.assert_allclose(stack.decision_function(part), expected[[4, 2]], atol=1e-2)


def test_several_kernels_are_averaged() -> None:
    bags, y, _ = toy(20)
    together = Bags(bags)
    views = Bags(
        kw.Views({"place": together.instances, "radius": (together.instances**2).sum(1)[:, None]}), together.bag_of
    )
    kernels = {"place": GAUSSIAN, "radius": Linear()}
    clf = fitted("witness", "annealing", views, y, kernels=kernels)
    assert clf.kernel_names_ == ("place:Gaussian(gamma=0.5)", "radius:Linear")
    np.testing.assert_array_equal(clf.weights_, [0.5, 0.5])
    alone = fitted("witness", "annealing", views, y, kernels=kernels, weights=[1.0, 0.0])
    np.testing.assert_allclose(
        alone.decision_function(views), fitted("witness", "annealing", bags, y).decision_function(bags), atol=1e-6
    )
    assert MIClassifier().fit(views, y).kernel_names_[0].startswith("place:Gaussian(gamma=")


def test_the_default_width_is_the_median_distance() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3))
    distances = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))[np.triu_indices(50, 1)]
    assert median_gaussian(X).gamma == pytest.approx(0.5 / np.median(distances) ** 2)
    assert median_gaussian(X, 2.0).gamma == pytest.approx(0.125 / np.median(distances) ** 2)
    assert median_gaussian(np.ones((5, 2))).gamma == 0.5
    mostly_equal = np.vstack([np.ones((9, 2)), np.zeros((1, 2))])
    assert np.isfinite(median_gaussian(mostly_equal).gamma)
    assert median_gaussian(mostly_equal + 1e3).gamma == pytest.approx(median_gaussian(mostly_equal).gamma)


def test_search_pickle_and_clone() -> None:
    bags, y, _ = toy(24)
    grid = {"C": [1.0, 100.0], "kernels": [GAUSSIAN]}
    search = GridSearchCV(MIClassifier("instance", "alp"), grid, cv=BagKFold(3)).fit(Bags(bags), y)
    assert search.best_score_ > 0.6
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.decision_function(bags), search.decision_function(Bags(bags)))
    assert clone(again).get_params()["C"] == search.best_params_["C"]


def test_names_of_classes() -> None:
    bags, y, _ = toy(20)
    names = np.array(["empty", "full"])[y]
    clf = fitted("witness", "annealing", bags, names)
    assert clf.classes_.tolist() == ["empty", "full"]
    assert set(clf.predict(bags)) <= {"empty", "full"} and clf.score(bags, names) > 0.8
    assert set(clf.predict_instances(bags)) <= {"empty", "full"}


def test_it_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    bags, y, _ = toy(10)
    fitted("instance", "annealing", bags, y, verbose=1)
    assert "temperature 1e+03: entropy" in capsys.readouterr().err


def test_without_an_intercept() -> None:
    bags, y, _ = toy(20)
    clf = fitted("witness", "annealing", bags, y, fit_intercept=False)
    assert clf.intercept_[0] == 0.0 and clf.score(bags, y) > 0.8


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scenario": "subset"}, "scenario must be 'instance' or 'witness', got 'subset'"),
        ({"method": "anneal"}, "method must be one of .* got 'anneal'"),
        ({"scenario": "witness", "method": "alp"}, "'alp' is for scenario='instance'"),
        ({"C": 0.0}, "C must be positive and finite"),
        ({"scenario": "instance", "method": "alp", "D": -1.0}, "D must be finite and not negative"),
        (
            {"scenario": "instance", "method": "alp", "positive_fraction": 0.0},
            r"positive_fraction must be in \(0, 1\]",
        ),
        ({"cooling": 1.0}, "must be above 1"),
        ({"initial_temperature": -1.0}, "initial_temperature must be positive"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"weights": "l1"}, "does not learn them"),
        ({"C": "1"}, "C must be positive and finite, got '1'"),
        ({"D": None}, "D must be finite and not negative, got None"),
        ({"positive_fraction": True}, r"positive_fraction must be in \(0, 1\], got True"),
        ({"cooling": "slow"}, "cooling must be above 1, got 'slow'"),
        ({"tol": None}, "tol must be positive, got None"),
    ],
)
def test_refuses_settings(settings: dict[str, Any], message: str) -> None:
    bags, y, _ = toy(10)
    with pytest.raises((TypeError, ValueError), match=message):
        MIClassifier(**settings).fit(bags, y)


def test_refuses_bags_and_labels_that_do_not_fit() -> None:
    bags, y, _ = toy(10)
    together = Bags(bags)
    clf = MIClassifier(method="alternation")
    with pytest.raises(ValueError, match="needs positive and negative bags, but y contains only one class: 1"):
        clf.fit(bags, np.ones(10))
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        clf.fit(bags, np.arange(10) % 3)
    with pytest.raises(ValueError, match="bag 1 is empty"):
        clf.fit([bags[0], bags[1][:0], *bags[2:]], y)
    with pytest.raises(ValueError, match="bag 1 has 1 columns but bag 0 has 2"):
        clf.fit([bags[0], bags[1][:, :1], *bags[2:]], y)
    with pytest.raises(ValueError, match=r"y has 7 labels, but there are 10 bags"):
        clf.fit(bags, y[:7])
    with pytest.raises(ValueError, match="groups has 3 entries"):
        clf.fit(together.instances, y, [1, 2, 3])
    with pytest.raises(ValueError, match="the rows of a bag share"):
        clf.fit(together.instances, np.arange(together.n_instances) % 2, together.bag_of)
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(3,\)"):
        clf.fit(bags, y, bag_weight=np.ones(3))
    with pytest.raises(ValueError, match="give kernels='precomputed'"):
        clf.fit(kw.KernelStack(np.eye(10)), y)
    broken = [bag.copy() for bag in bags]
    broken[3][0, 1] = np.nan
    with pytest.raises(ValueError, match="bag 3 contains NaN at row 0, column 1"):
        clf.fit(broken, y)


def test_refuses_new_bags_that_do_not_fit() -> None:
    bags, y, _ = toy(10)
    clf = MIClassifier(method="alternation")
    with pytest.raises(NotFittedError):
        clf.predict(bags)
    clf.fit(bags, y)
    with pytest.raises(ValueError, match="has 3 features, but MIClassifier is expecting 2"):
        clf.decision_function([np.ones((2, 3))])
