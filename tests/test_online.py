"""Online learning: against the formulas applied one sample at a time, and whatever way the stream is cut."""

from __future__ import annotations

import math
import pickle

import naive
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import KernelBank, KernelStack, OnlineMKLClassifier, Views, online
from kernelweave import kernels as kn
from kernelweave.datasets import make_views

METHODS = ("hedge", "om2")
KERNELS = (kn.Gaussian(), kn.Gaussian(0.25), kn.Linear())


@parametrize_with_checks([OnlineMKLClassifier(method="hedge"), OnlineMKLClassifier(n_epochs=2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# -- references -----------------------------------------------------------------------------------------------------


class NaiveHedge:
    """One perceptron a kernel on precomputed kernels (n_kernels, n, n), in the words of the formulas."""

    def __init__(self, grams, discount):
        self.grams, self.discount = grams, discount
        self.coef = np.zeros((len(grams), grams.shape[1]))
        self.errors = np.zeros(len(grams))
        self.seen = 0

    def weights(self):
        t = max(1, self.seen)
        b = self.discount or math.sqrt(t) / (math.sqrt(t) + math.sqrt(math.log(len(self.grams))))
        w = b**self.errors
        return w / w.sum()

    def functions(self, i):
        return np.array([sum(c * k for c, k in zip(self.coef[j], K[i], strict=True)) for j, K in enumerate(self.grams)])

    def vote(self, i):
        return sum(w * np.sign(f) for w, f in zip(self.weights(), self.functions(i), strict=True))

    def score(self, i):
        """Weighted mean of the cosines between the sample and the perceptrons."""
        total = 0.0
        for j, (w, f) in enumerate(zip(self.weights(), self.functions(i), strict=True)):
            length = math.sqrt(self.coef[j] @ self.grams[j] @ self.coef[j] * self.grams[j, i, i])
            total += w * f / length if length > 0 else 0.0
        return total

    def learn(self, i, y):
        for j, f in enumerate(self.functions(i)):
            if y * f <= 0:
                self.coef[j, i] += y
                self.errors[j] += 1
        self.seen += 1


class NaiveOM2:
    """Follow the regularised leader with a group norm, in the words of the formulas."""

    def __init__(self, grams, q):
        self.grams, self.q = grams, q or max(2.0, 2 * math.log(len(grams)))
        self.coef = np.zeros(grams.shape[1])

    def factors(self):
        norms = np.array([math.sqrt(max(0.0, self.coef @ K @ self.coef)) for K in self.grams])
        total = (norms**self.q).sum() ** (1 / self.q)
        return (norms / total) ** (self.q - 2) / self.q if total > 0 else np.ones(len(norms))

    def weights(self):
        return self.factors() / self.factors().sum()

    def score(self, i):
        return sum(b * (self.coef @ K[i]) for b, K in zip(self.factors(), self.grams, strict=True))

    vote = score

    def learn(self, i, y):
        if y * self.score(i) < 1:
            self.coef[i] += y


def learn_naively(grams, y, n_classes, method, **options):
    """Learn from all samples in order; return the problems, decision values (n, n_outputs) and mistakes."""
    make = {
        "hedge": lambda: NaiveHedge(grams, options.get("discount")),
        "om2": lambda: NaiveOM2(grams, options.get("q")),
    }
    problems = [make[method]() for _ in range(1 if n_classes == 2 else n_classes)]

    def decide(i):
        return np.array([problems[0].vote(i)] if n_classes == 2 else [problem.score(i) for problem in problems])

    mistakes = 0
    for i, label in enumerate(y):
        decision = decide(i)
        mistakes += label != (int(decision[0] > 0) if n_classes == 2 else int(decision.argmax()))
        for c, problem in enumerate(problems):
            problem.learn(i, 1.0 if label == (1 if n_classes == 2 else c) else -1.0)
    return problems, np.array([decide(i) for i in range(len(y))]), mistakes


def data(n_samples=90, n_classes=2, seed=0):
    return make_views(n_samples, 1, 0, 1, n_classes=n_classes, n_features=3, separation=2.0, random_state=seed)


def grams_of(views, kernels=KERNELS):
    return np.stack([naive.kernel(k, views[v], views[v], views[v]) for k in kernels for v in views.names])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    ("method", "options"), [("hedge", {}), ("hedge", {"discount": 0.7}), ("om2", {}), ("om2", {"q": 6.5})]
)
def test_agrees_with_the_formulas(method, options, n_classes):
    views, y = data(n_classes=n_classes)
    problems, decisions, mistakes = learn_naively(grams_of(views), y, n_classes, method, **options)
    clf = OnlineMKLClassifier(list(KERNELS), method=method, **options).fit(views, y)
    np.testing.assert_allclose(np.atleast_2d(clf.weights_), [p.weights() for p in problems], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(clf.decision_function(views).reshape(decisions.shape), decisions, rtol=1e-7, atol=1e-9)
    assert clf.n_mistakes_ == mistakes
    kept = np.any([np.atleast_2d(p.coef).any(axis=0) for p in problems], axis=0)
    assert clf.n_support_ == kept.sum()
    assert clf.n_samples_seen_ == len(y)


def test_mistakes_are_what_predict_says_before_learning():
    views, y = data(n_classes=3)
    clf = OnlineMKLClassifier(method="hedge").partial_fit(views[:5], y[:5], classes=[0, 1, 2])
    expected = clf.n_mistakes_
    for i in range(5, len(y)):
        expected += int(clf.predict(views[[i]])[0] != y[i])
        clf.partial_fit(views[[i]], y[[i]])
    assert clf.n_mistakes_ == expected > 0


@pytest.mark.parametrize("normalise", ["spherical", "trace", ("variance", "spherical")])
@pytest.mark.parametrize("method", METHODS)
def test_normalised_kernels_agree_with_the_formulas(method, normalise):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)) + 0.3, np.arange(60) % 2
    X[:, 0] += y
    kernels = [kn.Polynomial(3), kn.Product(kn.Linear(), kn.Gaussian())]
    bank = KernelBank(kernels, normalise=normalise, dtype="float64")
    built = bank.build(X)
    problems, decisions, mistakes = learn_naively(np.stack([built.gram(j) for j in range(2)]), y, 2, method)
    clf = OnlineMKLClassifier(bank, method=method).fit(X, y)
    np.testing.assert_allclose(clf.weights_, problems[0].weights(), rtol=1e-7)
    np.testing.assert_allclose(clf.decision_function(X), decisions[:, 0], rtol=1e-6, atol=1e-9)
    assert clf.n_mistakes_ == mistakes


# -- streams --------------------------------------------------------------------------------------------------------


def learned_in_batches(clf, views, y, first, size):
    clf = clone(clf).partial_fit(views[:first], y[:first], classes=np.unique(y))
    for start in range(first, len(y), size):
        clf.partial_fit(views[start : start + size], y[start : start + size])
    return clf


def assert_same_model(a, b, views):
    np.testing.assert_allclose(a.weights_, b.weights_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.decision_function(views), b.decision_function(views), rtol=1e-7, atol=1e-8)
    assert (a.n_mistakes_, a.n_support_, a.n_samples_seen_) == (b.n_mistakes_, b.n_support_, b.n_samples_seen_)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_cutting_the_stream_differently_gives_the_same_model(method, n_classes, monkeypatch):
    monkeypatch.setattr(online, "SLAB", 16)  # so that the support fills several slabs
    views, y = data(130, n_classes)
    bank = KernelBank([kn.Gaussian(), kn.Laplacian(metric="cityblock"), kn.Polynomial(2)], normalise="spherical")
    clf = OnlineMKLClassifier(bank, method=method)
    models = [learned_in_batches(clf, views, y, first=20, size=size) for size in (1, 7, 110)]
    assert models[0].n_support_ > 2 * 16
    for model in models[1:]:
        assert_same_model(models[0], model, views)


def test_whole_data_set_in_one_batch_is_one_pass_of_fit():
    views, y = data()
    whole = OnlineMKLClassifier().partial_fit(views, y, classes=[0, 1])
    assert_same_model(whole, OnlineMKLClassifier().fit(views, y), views)


@pytest.mark.parametrize(("n_classes", "n_features", "side", "origin"), [(2, 4, 1 / 7, 0.3), (3, 6, np.pi, 0.1)])
@pytest.mark.parametrize("method", METHODS)
def test_ties_do_not_depend_on_the_batches(method, n_classes, n_features, side, origin):
    # In the corners of a cube with random labels many samples are equal, and many functions 0 but for rounding.
    clf = OnlineMKLClassifier([kn.Gaussian(gamma=2.0), kn.Gaussian(gamma=0.5)], method=method)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        corners = Views({"x": rng.integers(0, 2, size=(200, n_features)) * side + origin})
        y = rng.integers(0, n_classes, size=200)
        one_by_one, whole = (learned_in_batches(clf, corners, y, first=2, size=size) for size in (1, 198))
        assert_same_model(one_by_one, whole, corners)


@pytest.mark.parametrize("method", METHODS)
def test_mistakes_stop_on_separable_data(method):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 2)) * 0.4 + np.where(y == 1, 2.0, -2.0)[:, None]
    clf = OnlineMKLClassifier([kn.Gaussian(), kn.Linear()], method=method).fit(X, y)
    for _ in range(30):
        before = clf.n_mistakes_, clf.n_support_
        clf.partial_fit(X, y)
    assert (clf.n_mistakes_, clf.n_support_) == before
    assert clf.n_mistakes_ < 10
    assert clf.score(X, y) == 1.0


def test_perceptron_mistakes_stay_within_the_bound_of_novikoff():
    # A perceptron that separates with margin m in a space where samples have length R errs at most (R / m) ** 2 times.
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    direction = np.array([0.5, -0.5, 0.5, 0.5])
    X = X[np.abs(X @ direction) > 0.15]
    clf = OnlineMKLClassifier(kn.Linear(), method="hedge", n_epochs=5).fit(X, X @ direction > 0)
    assert 0 < clf.n_mistakes_ <= (1 / 0.15) ** 2
    assert clf.weights_.tolist() == [1.0]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("method", "options"), [("hedge", {}), ("hedge", {"discount": 0.9}), ("om2", {"q": 8.0})])
def test_noise_kernel_loses_its_weight(method, options, n_classes):
    views, y = make_views(400, 1, 0, 1, n_classes=n_classes, separation=4.0, random_state=0)
    clf = OnlineMKLClassifier(kn.Gaussian(), method=method, **options)
    clf.partial_fit(views[:40], y[:40], classes=np.unique(y))
    early = np.atleast_2d(clf.weights_)
    clf.partial_fit(views[40:], y[40:])
    useful, noise = np.atleast_2d(clf.weights_).T
    assert clf.kernel_names_ == ("useful0:Gaussian", "noise0:Gaussian")
    assert np.all(noise < 0.1 * useful)
    assert np.all(noise < early[:, 1])
    np.testing.assert_allclose(useful + noise, 1.0)


def test_sign_of_two_class_decisions_is_the_vote():
    views, y = data()
    clf = OnlineMKLClassifier(list(KERNELS), method="hedge").fit(views, y)
    decisions = clf.decision_function(views)
    assert np.abs(decisions).max() <= 1 + 1e-12
    np.testing.assert_array_equal(clf.predict(views), clf.classes_[(decisions > 0).astype(int)])


def test_passes_keep_a_sample_once():
    views, y = data(60)
    clf = OnlineMKLClassifier(method="om2", n_epochs=6).fit(views, y)
    assert clf.n_samples_seen_ == 6 * 60
    assert clf.n_support_ <= 60
    again = OnlineMKLClassifier(method="om2").fit(views, y)
    for _ in range(5):
        again.partial_fit(views, y)  # does not know that samples come again, and keeps them again
    assert again.n_support_ > clf.n_support_
    np.testing.assert_allclose(again.decision_function(views), clf.decision_function(views), rtol=1e-7, atol=1e-9)


def test_random_state_shuffles():
    views, y = data()
    order = np.argsort(y, kind="stable")
    views, y = views[order], y[order]
    shuffled = OnlineMKLClassifier(random_state=0).fit(views, y)
    assert_same_model(shuffled, OnlineMKLClassifier(random_state=0).fit(views, y), views)
    in_order = OnlineMKLClassifier().fit(views, y)
    assert shuffled.n_mistakes_ != in_order.n_mistakes_


def test_fit_forgets():
    views, y = data()
    clf = OnlineMKLClassifier().fit(views, 1 - y).fit(views, y)
    assert_same_model(clf, OnlineMKLClassifier().fit(views, y), views)


def test_pickled_models_go_on_learning(monkeypatch):
    monkeypatch.setattr(online, "SLAB", 16)
    views, y = data(120)
    bank = KernelBank([kn.Polynomial(2), kn.ChiSquared()], normalise="spherical")
    views = Views({name: np.abs(views[name]) for name in views.names})
    clf = OnlineMKLClassifier(bank).partial_fit(views[:60], y[:60], classes=[0, 1])
    clf.predict(views)
    copy = pickle.loads(pickle.dumps(clf))
    assert_same_model(clf.partial_fit(views[60:], y[60:]), copy.partial_fit(views[60:], y[60:]), views)


def test_pickled_model_holds_its_support_and_little_else(monkeypatch):
    monkeypatch.setattr(online, "SLAB", 16)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 300)), rng.integers(0, 2, size=100)
    clf = OnlineMKLClassifier(kn.Gaussian()).fit(X, y)
    clf.predict(X)
    assert clf.n_support_ > 3 * 16
    assert len(pickle.dumps(clf)) < 1.3 * 8 * 300 * (clf.n_support_ + 16)


def test_same_data_in_every_form():
    views, y = data()
    names = list(views.names)
    X = np.hstack([views[name] for name in names])
    columns = {names[0]: slice(0, 3), names[1]: [3, 4, 5]}
    labels = [f"{name}.{i}" for name in names for i in range(3)]
    expected = OnlineMKLClassifier(list(KERNELS)).fit(views, y)
    of_array = OnlineMKLClassifier(KernelBank(list(KERNELS), columns=columns)).fit(X, y)
    assert of_array.kernel_names_ == expected.kernel_names_
    for form in (
        {name: views[name] for name in names},
        pd.DataFrame(X, columns=labels),
        pl.DataFrame(X, schema=labels),
    ):
        clf = OnlineMKLClassifier(list(KERNELS)).fit(form, y)
        np.testing.assert_allclose(clf.decision_function(form), expected.decision_function(views))
    np.testing.assert_allclose(of_array.decision_function(X), expected.decision_function(views))


def test_string_labels_single_precision_and_cross_validation():
    views, y = make_views(200, 2, 0, 1, separation=4.0, random_state=1)
    views = Views({name: views[name].astype(np.float32) for name in views.names})
    names = np.array(["cat", "dog"])[y]
    assert cross_val_score(OnlineMKLClassifier(method="om2"), views, names, cv=3).mean() > 0.9


def test_functions_are_kernels_too():
    views, y = data(40)

    def cubic(A, B):
        return (1 + A @ B.T) ** 3

    written = OnlineMKLClassifier(kn.FromFunction(cubic)).fit(views, y)
    built_in = OnlineMKLClassifier(kn.Polynomial(3)).fit(views, y)
    np.testing.assert_allclose(written.decision_function(views), built_in.decision_function(views))
    assert written.n_support_ == built_in.n_support_


def test_one_sample_at_a_time_with_a_fixed_bandwidth():
    views, y = data(30)
    clf = OnlineMKLClassifier([kn.Gaussian(gamma=0.5), kn.Linear()])
    one_by_one = learned_in_batches(clf, views, y, first=1, size=1)
    assert_same_model(one_by_one, clf.fit(views, y), views)


# -- bad input ------------------------------------------------------------------------------------------------------


def test_first_batch_must_give_a_bandwidth():
    views, y = data(20)
    with pytest.raises(ValueError, match=r"useful0:Gaussian.*1 sample.*Gaussian\(gamma=0.5\)"):
        OnlineMKLClassifier(kn.Gaussian()).partial_fit(views[:1], y[:1], classes=[0, 1])
    constant = {"a": views["useful0"], "b": np.ones((20, 2))}
    clf = OnlineMKLClassifier(kn.ChiSquared())
    with pytest.raises(ValueError, match=r"b:ChiSquared.*20 equal samples in view 'b'"):
        clf.partial_fit({name: np.abs(rows) for name, rows in constant.items()}, y, classes=[0, 1])
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clf.partial_fit(views, y)  # what failed has not begun


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("precomputed", "cannot use kernels='precomputed'"),
        (kn.Precomputed(), "is precomputed"),
        (kn.Normalised(kn.Linear(), "center"), "centred or repaired"),
        (kn.Repaired(kn.Linear(), "clip"), "centred or repaired"),
        (kn.Repaired(kn.Linear(), "shift"), "centred or repaired"),
    ],
)
def test_kernels_that_need_all_samples_are_refused(kernels, message):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 6))
    with pytest.raises(ValueError, match=message):
        OnlineMKLClassifier(kernels).fit(rows @ rows.T, [0, 1] * 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "perceptron"}, "method must be 'hedge' or 'om2', got 'perceptron'"),
        ({"method": "hedge", "discount": 1.0}, "discount must be a number between 0 and 1"),
        ({"method": "hedge", "discount": 0.0}, "discount must be a number between 0 and 1"),
        ({"method": "hedge", "discount": math.nan}, "discount must be a number between 0 and 1"),
        ({"method": "om2", "q": 1.5}, "q must be a finite number of at least 2, got 1.5"),
        ({"method": "om2", "q": math.inf}, "q must be a finite number of at least 2"),
        ({"n_epochs": 0}, "n_epochs must be an integer of at least 1, got 0"),
        ({"n_epochs": 1.5}, "n_epochs must be an integer of at least 1, got 1.5"),
    ],
)
def test_arguments_are_checked(arguments, message):
    views, y = data(20)
    with pytest.raises(ValueError, match=message):
        OnlineMKLClassifier(**arguments).fit(views, y)


def test_labels_are_checked():
    views, y = data(20)
    with pytest.raises(ValueError, match="only one class"):
        OnlineMKLClassifier().fit(views, np.zeros(20))
    with pytest.raises(ValueError, match="only one class"):
        OnlineMKLClassifier().partial_fit(views, y, classes=[1])
    clf = OnlineMKLClassifier().partial_fit(views, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"new labels \[7\]; the classes of this stream are \[0, 1\]"):
        clf.partial_fit(views[:2], [0, 7])
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2\] is not what the first call was given"):
        clf.partial_fit(views, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.partial_fit(views, y[:-1])
    assert clf.n_samples_seen_ == 20
    clf.partial_fit(views[:1], y[:1], classes=[1, 0])  # a batch of one class, and the same classes again, are fine
    assert clf.n_samples_seen_ == 21


def test_views_are_checked_and_nothing_is_learned_from_bad_ones():
    views, y = data(20)
    clf = OnlineMKLClassifier().fit(views, y)
    with pytest.raises(ValueError, match="view 'noise0' is missing"):
        clf.partial_fit({"useful0": views["useful0"]}, y)
    with pytest.raises(ValueError, match="view 'noise0' is missing"):
        clf.predict({"useful0": views["useful0"]})
    with pytest.raises(ValueError, match="view 'noise0' has 2 columns, but had 3 in the first batch"):
        clf.partial_fit({"useful0": views["useful0"], "noise0": views["noise0"][:, :2]}, y)
    holes = views["noise0"].copy()
    holes[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"'noise0' contains NaN at row 3, column 1"):
        clf.partial_fit({"useful0": views["useful0"], "noise0": holes}, y)
    with pytest.raises(TypeError, match="KernelStack holds precomputed kernels"):
        clf.predict(KernelStack(np.eye(3)))
    assert clf.n_samples_seen_ == 20
    extra = {**{name: views[name] for name in views.names}, "more": np.ones((20, 1))}
    np.testing.assert_array_equal(clf.predict(extra), clf.predict(views))


def test_later_batches_must_suit_the_kernels():
    views, y = data(20)
    counts = np.abs(views["useful0"])
    clf = OnlineMKLClassifier(kn.ChiSquared()).fit(counts, y)
    with pytest.raises(ValueError, match=r"negative value -1 at row 0"):
        clf.partial_fit(-np.ones((1, 3)), [0])
    overflowing = OnlineMKLClassifier(kn.Polynomial(9)).fit(counts, y)
    with pytest.raises(ValueError, match=r"x:Polynomial\(9\).*not finite"):
        overflowing.partial_fit(np.full((1, 3), 1e40), [0])
