"""Samples that lack a view: what is learned from the others, zeros and factors, in training and for new samples."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import InfiniteKernelClassifier, KernelStack, LPBeta, MKLClassifier, OnlineMKLClassifier, Views
from kernelweave.datasets import make_views
from kernelweave.kernels import ChiSquared, Gaussian, KernelBank, Linear, Mean, Normalised, Product
from kernelweave.kernels.operators import block_of
from kernelweave.model_files import load, save
from kernelweave.views import as_views

N, NEW = 60, 15
KERNELS = {
    "a": [Gaussian(), Normalised(Linear(), ("center", "trace")), ChiSquared()],
    "b": [Normalised(Linear(), "spherical"), Gaussian(0.5)],
    "c": Linear(),
    "both": Product({"a": Gaussian(), "b": Linear()}),
    "either": Mean({"b": Gaussian(), "c": Linear()}),
}
VIEWS_OF = [("a",)] * 3 + [("b",)] * 2 + [("c",), ("a", "b"), ("b", "c")]
STORAGES = [
    {"storage": "packed"},
    {"storage": "packed", "normalise": ("center", "trace")},
    {"storage": "recompute", "normalise": "trace"},
    {"rank": N, "normalise": "variance"},
]


def features(n, seed):
    rng = np.random.default_rng(seed)
    return {"a": rng.random((n, 4)), "b": rng.random((n, 3)) + 0.1, "c": rng.random((n, 2))}


def without(arrays, lacking):
    arrays = {name: array.copy() for name, array in arrays.items()}
    for name, rows in lacking.items():
        arrays[name][rows] = np.nan
    return Views(arrays)


TRAIN, TEST = features(N, 0), features(NEW, 1)
LACKING = {"a": [3, 4, 17, 59], "b": [0, 4, 30]}
LACKING_NEW = {"a": [2], "b": [2, 7], "c": [9]}


@pytest.fixture(scope="module", params=STORAGES, ids=lambda storage: "-".join(map(str, storage.values())))
def settings(request):
    return {"dtype": "float64", **request.param}


def built(settings, **more):
    return KernelBank(KERNELS, **settings, **more).build(without(TRAIN, LACKING))


def dense(bank, j):
    every = np.arange(bank.n_samples)
    return block_of(bank.gram(j), every, every)


def here(lacking, n, views):
    return np.all([~np.isin(np.arange(n), lacking.get(view, [])) for view in views], axis=0)


@pytest.mark.parametrize("missing", ["zero", "rescale"])
def test_equal_to_dropping_the_samples_from_the_kernels_that_they_lack(settings, missing):
    bank = built(settings, missing=missing)
    new = without(TEST, LACKING_NEW)
    cross = bank.expansion(np.arange(len(VIEWS_OF)), np.arange(N)).cross(new)
    counts = [sum(here(lacking, n, views) for views in VIEWS_OF) for lacking, n in ((LACKING, N), (LACKING_NEW, NEW))]
    left, right = (np.sqrt(len(VIEWS_OF) / count) if missing == "rescale" else 1.0 + 0 * count for count in counts)
    for j, views in enumerate(VIEWS_OF):
        rows, new_rows = np.flatnonzero(here(LACKING, N, views)), np.flatnonzero(here(LACKING_NEW, NEW, views))
        dropped = KernelBank(KERNELS, **settings).build(Views(TRAIN)[rows])
        expected = np.zeros((N, N))
        expected[np.ix_(rows, rows)] = dense(dropped, j)
        tolerance = {"rtol": 1e-7, "atol": 1e-7 * np.abs(expected).max()}
        assert_allclose(dense(bank, j), expected * np.outer(left, left), **tolerance)
        expected = np.zeros((NEW, N))
        expansion = dropped.expansion([j], np.arange(len(rows)))
        expected[np.ix_(new_rows, rows)] = expansion.cross(Views(TEST)[new_rows])[0]
        assert_allclose(cross[j], expected * np.outer(right, left), **tolerance)


@pytest.mark.parametrize("missing", ["zero", "rescale"])
def test_stays_positive_semi_definite(settings, missing):
    bank = built(settings, missing=missing)
    for j in range(bank.n_kernels):
        values = np.linalg.eigvalsh(dense(bank, j))
        assert values[0] >= -1e-9 * values[-1]


@pytest.mark.parametrize("missing", ["zero", "rescale"])
def test_a_bank_that_was_restricted_knows_which_samples_lack_what(settings, missing):
    bank = built(settings, missing=missing)
    some = np.array([4, 20, 3, 0, 59, 8])
    part = bank.restrict(some)
    for j in range(bank.n_kernels):
        assert_allclose(dense(part, j), dense(bank, j)[np.ix_(some, some)], atol=1e-12)
    new = without(TEST, LACKING_NEW)
    kernels = np.arange(bank.n_kernels)
    whole = bank.expansion(kernels, np.arange(N)).cross(new)
    assert_allclose(part.expansion(kernels, [2, 0, 5]).cross(new), whole[:, :, some[[2, 0, 5]]], atol=1e-12)
    V = np.random.default_rng(0).normal(size=(6, 2))
    stack = np.stack([dense(part, j) for j in kernels])
    assert_allclose(part.quadratics(V), 0.5 * np.einsum("im,jik,km->j", V, stack, V), rtol=1e-7)
    assert_allclose(part.rows([1, 2]), stack[:, [1, 2]], atol=1e-12)


@pytest.mark.parametrize("missing", ["zero", "rescale"])
def test_nothing_changes_where_nothing_is_missing(settings, missing):
    plain = KernelBank(KERNELS, **settings).build(TRAIN)
    bank = KernelBank(KERNELS, **settings, missing=missing).build(TRAIN)
    kernels = np.arange(bank.n_kernels)
    for j in kernels:
        assert_allclose(dense(bank, j), dense(plain, j), rtol=1e-12)
    expected = plain.expansion(kernels, [1, 5]).cross(TEST)
    assert_allclose(bank.expansion(kernels, [1, 5]).cross(TEST), expected, rtol=1e-12)
    without_a = bank.expansion(kernels, [1, 5]).cross(without(TEST, {"a": np.arange(NEW)}))
    assert (without_a[0] == 0).all()


def test_every_sample_keeps_its_length_when_rescaled():
    bank = KernelBank(Gaussian(), missing="rescale").build(without(TRAIN, LACKING))
    assert_allclose(np.diag(bank.combine(np.ones(3))), 3.0, rtol=1e-6)
    assert np.diag(KernelBank(Gaussian(), missing="zero").build(without(TRAIN, LACKING)).combine(np.ones(3)))[4] == 1.0


def test_refused_unless_asked_for(settings):
    message = r"view 'a' is missing \(NaN in all columns\) for 4 of 60 samples, the first in row 3: .*missing='zero'"
    with pytest.raises(ValueError, match=message):
        built(settings)
    with pytest.raises(ValueError, match="missing is one of"):
        KernelBank(KERNELS, missing="drop")
    trained = KernelBank(KERNELS, **settings).build(TRAIN).expansion([0, 3], [0, 1])
    with pytest.raises(ValueError, match=r"view 'a' is missing .* for 1 of 15 samples"):
        trained.cross(without(TEST, {"a": [2]}))


def test_a_sample_without_any_view_is_refused_in_training_and_scores_zero_later(settings):
    lacking = {"a": [5], "b": [5], "c": [5]}
    with pytest.raises(ValueError, match="sample 5 lacks the views of all kernels"):
        KernelBank(KERNELS, **settings, missing="zero").build(without(TRAIN, lacking))
    for missing in ("zero", "rescale"):
        expansion = KernelBank(KERNELS, **settings, missing=missing).build(TRAIN).expansion([0, 3], [0, 1])
        assert (expansion.scores(without(TEST, lacking), [1.0, 1.0], np.ones((2, 1)))[5] == 0).all()


def test_nan_in_a_part_of_a_row_is_an_error():
    arrays = {name: array.copy() for name, array in TRAIN.items()}
    arrays["a"][7, 2] = np.nan
    with pytest.raises(ValueError, match="view 'a' contains NaN at row 7, column 2"):
        Views(arrays)
    arrays["a"][3] = np.nan  # a whole row elsewhere does not hide it
    with pytest.raises(ValueError, match="view 'a' contains NaN at row 7, column 2"):
        Views(arrays)


def test_views_say_what_is_there():
    views = without(TRAIN, LACKING)
    assert not views.complete
    assert Views(TRAIN).complete
    assert np.flatnonzero(~views.present("a")).tolist() == [3, 4, 17, 59]
    assert views.present("c").all()
    assert (views["a"][3] == 0).all()
    part = views[[3, 5]]
    assert part.present("a").tolist() == [False, True]
    assert views[[5, 6]].complete
    with pytest.raises(ValueError, match=r"view 'a' is missing.*leave these samples out"):
        as_views(views)


def test_a_precomputed_stack_is_always_complete():
    K = np.stack([np.eye(5), np.ones((5, 5))])
    bank = KernelBank("precomputed", missing="rescale").build(KernelStack(K))
    assert_allclose(bank.gram(1), 1.0)
    assert_allclose(bank.expansion([0, 1], [1, 2]).cross(K[:, :3]), K[:, :3, [1, 2]])


@pytest.mark.parametrize("rank", [None, 40])
@pytest.mark.parametrize("missing", ["zero", "rescale"])
def test_a_model_on_samples_that_lack_views(missing, rank, tmp_path):
    views, y = make_views(n_samples=300, n_useful=3, n_noise=1, random_state=0)
    rng = np.random.default_rng(0)
    names = views.names
    arrays = {name: views[name].copy() for name in names}
    keeps = rng.integers(len(names), size=300)  # everyone keeps one view at least
    for k, name in enumerate(names):
        arrays[name][(rng.random(300) < 0.4) & (keeps != k)] = np.nan
    lacking = Views(arrays)
    train, test = np.arange(200), np.arange(200, 300)
    bank = KernelBank(Gaussian(), missing=missing, rank=rank)
    model = MKLClassifier(bank, C=3.0).fit(lacking[train], y[train])
    assert model.gap_ <= 1e-3
    scores = model.decision_function(lacking[test])
    complete = np.flatnonzero(np.all([lacking[train].present(name) for name in names], axis=0))
    dropped = MKLClassifier(KernelBank(Gaussian(), rank=rank and 20), C=3.0).fit(views[train[complete]], y[complete])
    assert model.score(lacking[test], y[test]) >= dropped.score(views[test], y[test]) - 0.05  # which sees all views
    save(model, tmp_path / "model.kw")
    assert (load(tmp_path / "model.kw").decision_function(lacking[test]) == scores).all()


@pytest.mark.parametrize(
    "estimator", [MKLClassifier(), InfiniteKernelClassifier(), OnlineMKLClassifier(), LPBeta()], ids=str
)
def test_estimators_refuse_samples_that_lack_views_unless_their_bank_completes_them(estimator):
    y = np.arange(N) % 2
    with pytest.raises(ValueError, match=r"view 'a' is missing .* for 4 of 60 samples, the first in row 3"):
        estimator.fit(without(TRAIN, LACKING), y)
    trained = estimator.fit(TRAIN, y)
    with pytest.raises(ValueError, match=r"view 'a' is missing .* for 1 of 15 samples, the first in row 2"):
        trained.predict(without(TEST, {"a": [2]}))
