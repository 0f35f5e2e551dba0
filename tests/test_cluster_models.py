"""Estimators on a Dask cluster: by one argument the same fit, also when a worker is lost in the middle of it."""

import gc
import os
import pickle
import signal
import warnings

import joblib
import numpy as np
import pytest
from counted_features import Size, Words, same, write_pictures
from numpy.testing import assert_allclose
from sklearn.model_selection import cross_val_score

from kernelweave import LabelRanker, MKLClassifier, MKLRegressor, Views, load, save
from kernelweave.images.extraction import ImageFeatures
from kernelweave.kernels import ChiSquared, Gaussian, KernelBank, Linear
from kernelweave.kernels.cluster_workers import Panels
from kernelweave.solvers.pairing import choose
from kernelweave.weights import Best, CappedSimplex, LpBall, Simplex

pytest.importorskip("distributed", reason="banks on a cluster need Dask: kernelweave[cluster]")

N = 160
KERNELS = [Gaussian(0.5), Gaussian(2.0), ChiSquared()]


@pytest.fixture(scope="module")
def problem():
    """Two views, three classes and five labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    A, B = rng.gamma(1.0, size=(N, 4)), rng.gamma(1.0, size=(N, 3))
    A[:, 0] += y == 1
    B[:, 1] += 2 * (y == 2)
    labels = np.column_stack([y == 0, y == 1, y == 2, A[:, 1] > 1, B[:, 0] > 1]).astype(int)
    return Views({"a": A, "b": B}), y, labels


MODELS = {
    "a vector a class": lambda bank: MKLClassifier(bank, tol=1e-5),
    "classes share": lambda bank: MKLClassifier(bank, weights="l2", sharing="sum", tol=1e-6, n_jobs=2),
    "without a bias": lambda bank: MKLClassifier(bank, weights="average", fit_intercept=False, tol=1e-6),
    "pairwise": lambda bank: LabelRanker(kernels=bank, loss="pairwise", tol=1e-4),
    "group": lambda bank: LabelRanker(kernels=bank, loss="group", weights="average", tol=1e-2),
}


@pytest.mark.parametrize("limit", [None, 0], ids=["brought", "stays"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_fit_over_a_cluster(problem, client, name, limit):
    views, y, labels = problem
    targets = y if "Classifier" in type(MODELS[name](None)).__name__ else labels
    here = MODELS[name](KernelBank(KERNELS, dtype="float64")).fit(views, targets)
    there = MODELS[name](KernelBank(KERNELS, dtype="float64", cluster=client, memory_limit=limit)).fit(views, targets)
    assert there.gap_ <= there.tol
    assert_allclose(there.objective_, here.objective_, rtol=2 * there.tol)
    assert_allclose(there.weights_, here.weights_, atol=2e-3)
    # The duality gap bounds the squared distance of a decision function from the best one.
    apart = 2 * np.sqrt(2 * there.tol * np.max(here.objective_)) if limit == 0 else 1e-4
    assert_allclose(there.decision_function(views), here.decision_function(views), atol=apart)


def test_the_best_kernel_is_found_by_products(problem, client):
    views, y, _ = problem
    few = np.arange(60)
    bank = KernelBank([Gaussian()], cluster=client, memory_limit=0)
    there = MKLClassifier(bank, weights=Best(cv=2), tol=1e-2).fit(views[few], y[few] == 2)
    here = MKLClassifier(KernelBank([Gaussian()]), weights=Best(cv=2), tol=1e-2).fit(views[few], y[few] == 2)
    assert_allclose(there.weights_, here.weights_)


def test_regression_needs_the_whole_kernel(problem, client):
    views, y, _ = problem
    here = MKLRegressor(KernelBank(KERNELS, dtype="float64")).fit(views, y)
    there = MKLRegressor(KernelBank(KERNELS, dtype="float64", cluster=client)).fit(views, y)
    assert_allclose(there.predict(views), here.predict(views), rtol=1e-6)
    with pytest.raises(TypeError, match=r"whole kernel, which ClusterKernel does not hold"):
        MKLRegressor(KernelBank(KERNELS, cluster=client, memory_limit=0)).fit(views, y)


def test_solvers_without_second_derivatives_are_chosen_where_blocks_are_too_large(client, problem, monkeypatch):
    from kernelweave.machines import MLRL1, SVM

    chosen = {weights: choose(weights, SVM(), 1, blocks=False) for weights in (Simplex(), LpBall(2.0), LpBall(1.2))}
    assert list(chosen.values()) == ["level", "alternating", "alternating"]
    assert choose(CappedSimplex(nu=0.5), SVM(), 1, blocks=False) == "projected-gradient"
    assert choose(Simplex(), SVM()) == choose(Simplex(), MLRL1(), 5, blocks=False) == "newton"
    views, y, _ = problem
    monkeypatch.setattr("kernelweave.kernels.cluster.BROUGHT", 1000)
    model = MKLClassifier(KernelBank(KERNELS, cluster=client, memory_limit=0)).fit(views, y == 1)
    assert model.gap_ <= model.tol


def test_cross_validation_with_a_bank_on_a_cluster(problem, client):
    views, y, _ = problem
    banks = KernelBank(KERNELS), KernelBank(KERNELS, cluster=client)
    here, there = (cross_val_score(MKLClassifier(bank), views, y, cv=3) for bank in banks)
    assert_allclose(there, here)


def test_models_are_kept_without_their_cluster(problem, client, tmp_path):
    views, y, _ = problem
    model = MKLClassifier(KernelBank([Gaussian(), Linear()], cluster=client)).fit(views, y)
    save(model, tmp_path / "model.kw")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.kw")):
        assert again.kernels.cluster == client.scheduler.address
        assert_allclose(again.decision_function(views), model.decision_function(views))


def test_a_killed_worker_does_not_change_the_fit(problem, monkeypatch):
    """Two processes are started by one argument; one is killed while the machine works, and nothing is left behind."""
    views, y, _ = problem
    here = MKLClassifier(KernelBank(KERNELS, dtype="float64"), tol=1e-4).fit(views, y == 1)
    ask, seen, killed, clients = Panels.ask, [], [], []

    def killing(self, method, *arguments):
        seen.append(method)
        if method == "product" and seen.count("product") == 5:
            client, address = self.cluster.client, self._addresses[0]
            clients.append(client)
            killed.append(client.run(os.getpid, workers=[address])[address])
            os.kill(killed[0], signal.SIGKILL)
        return ask(self, method, *arguments)

    monkeypatch.setattr(Panels, "ask", killing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bank = KernelBank(KERNELS, dtype="float64", cluster=2, memory_limit=0)
        there = MKLClassifier(bank, tol=1e-4).fit(views, y == 1)
        gc.collect()
    assert killed and seen.count("product") > 10
    assert there.gap_ <= 1e-4
    assert_allclose(there.objective_, here.objective_, rtol=2e-4)
    apart = 2 * np.sqrt(2e-4 * here.objective_)
    assert_allclose(there.decision_function(views), here.decision_function(views), atol=apart)
    assert clients[0].status == "closed"
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)


# -- joblib's Dask backend --------------------------------------------------------------------------------------------


def tasks_of(client):
    """Names of all tasks that the scheduler has seen lately."""
    return {str(row[0]) for row in client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.transition_log))}


def test_cross_validation_is_carried_by_the_dask_backend(problem, client):
    views, y, _ = problem
    here = cross_val_score(MKLClassifier(KERNELS), views, y, cv=3)
    before = tasks_of(client)
    with joblib.parallel_config(backend="dask"):
        there = cross_val_score(MKLClassifier(KERNELS), views, y, cv=3)
    assert_allclose(there, here)
    assert any("fit_and_score" in name for name in tasks_of(client) - before)


def test_features_of_pictures_are_carried_by_the_dask_backend(tmp_path, client):
    paths = sorted(write_pictures(tmp_path / "pictures").iterdir())
    images = ImageFeatures([Size(), Words()], n_jobs=2)
    here = images.fit_transform(paths)
    before = tasks_of(client)
    with joblib.parallel_config(backend="dask"):
        there = images.fit_transform(paths)
    same(there, here)
    assert any("attempt" in name for name in tasks_of(client) - before)
