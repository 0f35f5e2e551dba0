"""Whole models on the torch device: the same as in memory up to the gap, and readable without torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import kernelweave as kw
from kernelweave.kernels import ChiSquared, Gaussian, KernelBank
from kernelweave.machines import MLRGL, SVM, MLRPairwise, NuSVM, ROCArea
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import Simplex

torch = pytest.importorskip("torch", reason="models on a device are tested where torch is installed")

TOL = 1e-4
#: Makes torch look as if it were not installed.
NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
"""


def bank(device="cpu", **settings):
    return KernelBank([Gaussian(0.5), Gaussian(2.0)], device=device, **settings)


@pytest.fixture(scope="module")
def data():
    return kw.datasets.make_views(n_samples=120, n_useful=2, n_noise=1, n_classes=3, random_state=0)


def agree(here, there, tol=TOL):
    """Both objectives bound the same optimum from above, and are off by at most their gaps."""
    a, b = np.atleast_1d(here.objective_), np.atleast_1d(there.objective_)
    assert there.gap_ <= tol
    assert_allclose(b, a, rtol=2 * tol)


@pytest.mark.parametrize(
    "settings",
    [
        {"sharing": "sum"},
        {"sharing": "none"},
        {"sharing": "none", "n_jobs": 2},  # fewer threads than kernels: each has a kernel of its own
        {"sharing": "worst-case"},
        {"sharing": "sum", "weights": "l2"},
        {"sharing": "sum", "solver": "level"},
        {"sharing": "sum", "solver": "reduced-gradient"},
        {"machine": NuSVM(0.2), "sharing": "sum"},
    ],
    ids=str,
)
def test_classifiers_agree_with_memory_up_to_the_gap(data, settings):
    views, y = data
    here = kw.MKLClassifier(bank(None), tol=TOL, **settings | {"n_jobs": None}).fit(views, y)
    there = kw.MKLClassifier(bank(), tol=TOL, **settings).fit(views, y)
    agree(here, there)
    assert np.mean(here.predict(views) == there.predict(views)) > 0.97


@pytest.mark.parametrize("loss", ["pairwise", "group"])
def test_rankers_agree_with_memory_up_to_the_gap(data, loss):
    views, y = data
    Y = np.eye(3)[y]
    here = kw.LabelRanker(loss=loss, kernels=bank(None), tol=1e-3).fit(views, Y)
    there = kw.LabelRanker(loss=loss, kernels=bank(), tol=1e-3).fit(views, Y)
    agree(here, there, 1e-3)
    assert np.mean(here.rank(views)[:, 0] == there.rank(views)[:, 0]) > 0.97


def test_regression_agrees_with_memory():
    views, y = kw.datasets.make_regression_views(n_samples=80, random_state=0)
    here = kw.MKLRegressor(bank(None), C=10.0).fit(views, y)
    there = kw.MKLRegressor(bank(), C=10.0).fit(views, y)
    assert_allclose(there.predict(views), here.predict(views), atol=1e-3)
    assert_allclose(there.objective_, here.objective_, rtol=1e-4)


@pytest.mark.parametrize("machine", [MLRPairwise(1.0), MLRGL(1.0), ROCArea(1.0)], ids=str)
def test_machines_that_go_sample_by_sample_run_on_the_device_too(data, machine):
    views, y = data
    built = bank().build(views)
    K = built.combine(np.full(built.n_kernels, 1 / built.n_kernels))
    dense = K.block(np.arange(len(y)), np.arange(len(y)))
    Y = 2 * np.eye(3)[y] - 1
    here, there = machine.solve(dense, Y, accuracy=1e-4), machine.solve(K, Y, accuracy=1e-4)
    assert there.gap <= 1e-4 * abs(there.primal)
    assert_allclose(there.primal, here.primal, rtol=2e-4)


def test_second_derivatives_agree_with_memory(data):
    views, y = data
    Y = 2 * np.eye(3)[y] - 1
    here, there = (
        KernelBank([Gaussian(0.5), Gaussian()], dtype="float64", device=d).build(views) for d in (None, "cpu")
    )
    weights = np.full(here.n_kernels, 1 / here.n_kernels)
    machine = SVM(1.0)
    K = here.combine(weights)
    solution = machine.solve(K, Y, accuracy=1e-8)
    expected = machine.curvature(K, Y, solution, here)
    found = machine.curvature(there.combine(weights), Y, solution, there)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-8 * np.abs(expected).max())


def test_half_precision_models_have_the_same_meaning(data):
    views, y = data
    here = kw.MKLClassifier(bank(None), sharing="sum").fit(views, y)
    half = kw.MKLClassifier(bank(dtype="float16"), sharing="sum").fit(views, y)
    assert half.gap_ <= 1e-3
    assert_allclose(half.objective_, here.objective_, rtol=5e-3)


def test_tensors_in_scores_out(data):
    views, y = data
    tensors = {name: torch.from_numpy(views[name]) for name in views.names}
    clf = kw.MKLClassifier([Gaussian()], sharing="sum").fit(tensors, y)
    plain = kw.MKLClassifier([Gaussian()], sharing="sum").fit(views, y)
    assert type(clf._expansion).__name__ == "DeviceExpansion"
    assert_allclose(clf.decision_function(tensors), plain.decision_function(views), atol=0.02)
    X = torch.from_numpy(np.hstack([views[name] for name in views.names]))
    one = kw.MKLClassifier([Gaussian()]).fit(X, y)
    assert one.n_features_in_ == X.shape[1]
    assert one.score(X, y) > 0.8


def test_cross_validation_and_probabilities(data):
    views, y = data
    scores = cross_val_score(kw.MKLClassifier(bank(), sharing="sum"), views, y, cv=2)
    assert scores.min() > 0.5
    clf = clone(kw.MKLClassifier(bank(), sharing="sum", probability=True)).fit(views, y)
    assert_allclose(clf.predict_proba(views).sum(axis=1), 1.0)


def test_models_of_a_device_need_no_torch_later(data, tmp_path):
    views, y = data
    clf = kw.MKLClassifier(bank(), sharing="sum").fit(views, y)
    scores = clf.decision_function(views)
    assert_allclose(pickle.loads(pickle.dumps(clf)).decision_function(views), scores, atol=1e-5)
    kw.save(clf, tmp_path / "model.kw")
    np.savez(tmp_path / "new.npz", **{name: views[name] for name in views.names})
    code = (
        f"{NO_TORCH}\n"
        "import numpy as np, kernelweave as kw\n"
        f"clf = kw.load({str(tmp_path / 'model.kw')!r})\n"
        f"new = dict(np.load({str(tmp_path / 'new.npz')!r}))\n"
        f"np.save({str(tmp_path / 'scores.npy')!r}, clf.decision_function(new))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert_allclose(np.load(tmp_path / "scores.npy"), scores, atol=1e-5)


def test_scores_in_small_chunks_are_the_same(data, monkeypatch):
    views, y = data
    clf = kw.MKLClassifier(bank(), sharing="none").fit(views, y)
    whole = clf.decision_function(views)
    monkeypatch.setattr("kernelweave.kernels.device.free_memory", lambda device: 1)
    assert_allclose(clf.decision_function(views), whole, atol=1e-6)


def test_the_bounds_of_single_precision_do_not_cross():
    rng = np.random.default_rng(1)
    X = rng.random((150, 20))
    y = np.where(X[:, :3].sum(axis=1) > 1.5, 1.0, -1.0)
    built = KernelBank([ChiSquared(0.5), ChiSquared(), Gaussian()], device="cpu").build(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        books = run("newton", Saddle(built, SVM(10.0), Simplex(), y[:, None], Stopping(tol=1e-6)))
    assert books.gap <= 1e-6
