"""Estimators in files: what is loaded predicts the same to the last bit; what cannot be kept is refused by name."""

from __future__ import annotations

import copy
import json
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fitted_models import BANK, CASES, TRAIN, C, L, array, fit, tagged, views
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import kernelweave as kw
from kernelweave import _archive
from kernelweave._archive import read_archive, write_archive
from kernelweave._estimator import BankEstimator
from kernelweave.kernels import (
    FromFunction,
    Gaussian,
    GaussianFamily,
    Kernel,
    KernelBank,
    Linear,
    Normalised,
    ParametricFamily,
    Polynomial,
    Product,
    SampledFamily,
)
from kernelweave.kernels.fitted import all_steps
from kernelweave.kernels.steps import Center, Clip, Scale, Shift, Spherical
from kernelweave.machines import SVM
from kernelweave.metric import Mahalanobis, PairSet
from kernelweave.model_files import estimator_from_state, estimator_state, load, save
from kernelweave.solvers import StochasticApproximation


def named(name):
    return next(case for case in CASES if case.name == name)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def built(request):
    return request.param.built()


def saved_and_loaded(model, folder):
    save(model, folder / "model.kw")
    return load(folder / "model.kw")


def assert_equal(one, other):
    """The same types and the same values, down to the last bit."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tolist() == other.tolist() if one.dtype.hasobject else one.tobytes() == other.tobytes()
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for part, other_part in zip(one, other, strict=True):
            assert_equal(part, other_part)
    elif isinstance(one, BaseEstimator):
        for name, value in vars(one).items():
            if name.endswith("_"):
                assert_equal(getattr(other, name), value.item() if isinstance(value, np.generic) else value)
    elif isinstance(one, (PairSet, Mahalanobis)):
        for field in fields(one):
            assert_equal(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


def outcomes(model, X, y):
    """Everything a model says about samples, by the name of the method."""
    if hasattr(model, "score") and (
        isinstance(model, BankEstimator) or (isinstance(y, np.ndarray) and not pd.isna(y).any())
    ):
        yield "score", model.score(X, y)
    for method in ("predict", "decision_function", "predict_proba", "rank", "tags", "transform"):
        if hasattr(model, method):
            yield method, getattr(model, method)(X)
    if isinstance(model, kw.LabelRanker):
        yield "top", model.predict(X, top=2)
        if np.ndim(model.predict(X)) == 2:
            yield "missing labels", model.missing_labels(X, y, top=7)


# --- round trips ------------------------------------------------------------------------------------------------------


def test_everything_a_model_says_is_the_same(built, tmp_path):
    model, X, y = built
    loaded = saved_and_loaded(model, tmp_path)
    assert type(loaded) is type(model)
    expected = dict(outcomes(model, X, y))
    found = dict(outcomes(loaded, X, y))
    assert list(found) == list(expected)
    for method in expected:
        assert_equal(found[method], expected[method])


def test_everything_that_was_learned_is_the_same(built, tmp_path):
    model, *_ = built
    loaded = saved_and_loaded(model, tmp_path)
    assert list(vars(loaded)) == list(vars(model))
    for name, value in vars(model).items():
        if name.endswith("_"):
            found = getattr(loaded, name)
            assert_equal(found, value.item() if isinstance(value, np.generic) else value)


def test_parameters_are_the_same_and_a_clone_can_be_fitted(built, tmp_path):
    model, *_ = built
    loaded = saved_and_loaded(model, tmp_path)
    expected = model.get_params(deep=False)
    if not isinstance(expected.get("random_state"), (int, type(None))):
        expected["random_state"] = None
    found = loaded.get_params(deep=False)
    for name in set(expected) - {"kernels", "machine", "solver"}:
        np.testing.assert_equal(found[name], expected[name])
    assert repr(found.get("machine")) == repr(expected.get("machine"))
    if isinstance(solver := expected.get("solver"), StochasticApproximation):
        assert found["solver"] == replace(solver, random_state=None)
    assert clone(loaded).get_params().keys() == model.get_params().keys()


def test_saving_again_gives_the_same_bytes(built, tmp_path):
    model, *_ = built
    loaded = saved_and_loaded(model, tmp_path)
    save(loaded, tmp_path / "again.kw")
    assert (tmp_path / "again.kw").read_bytes() == (tmp_path / "model.kw").read_bytes()


@pytest.mark.parametrize(
    "kernels",
    [BANK, BANK.kernels, Gaussian(np.float64(0.5)), [Linear(), Product(Linear(), Linear())], "precomputed", None],
)
def test_kernels_come_back_as_they_were_written(kernels, tmp_path):
    model = copy.copy(CASES[0].built()[0]).set_params(kernels=kernels)
    assert repr(saved_and_loaded(model, tmp_path).kernels) == repr(kernels)


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    X, y = views()
    model = fit(C(BANK.kernels["useful0"], probability=True, random_state=3), X, y)
    again = fit(saved_and_loaded(model, tmp_path), X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_new_samples_in_other_forms(tmp_path):
    X, y = views()
    model = fit(C(), X, y)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict({name: X[name] for name in X.names}), model.predict(X))
    model, test, _ = named("precomputed").built()
    loaded = saved_and_loaded(model, tmp_path)
    K = test.base[:, TRAIN:, :TRAIN]
    np.testing.assert_array_equal(loaded.predict(K), model.predict(test))


def test_missing_labels_of_the_training_samples_are_kept(tmp_path):
    X, Y = tagged()
    model = fit(L(random_state=0), X, Y)
    found = saved_and_loaded(model, tmp_path).missing_labels(None, Y, top=9)
    assert_equal(found, model.missing_labels(None, Y, top=9))


def test_the_bank_with_every_kind_of_kernel_has_every_kind_of_step():
    """Or the tests above would prove less than they say."""
    model, *_ = named("every kind of kernel").built()
    steps = [step for part in model._expansion._parts for node in part.nodes for step in all_steps(node)]
    assert {type(step) for step in steps} == {Scale, Spherical, Center, Clip, Shift}
    assert all(step.vectors.shape[1] > 0 for step in steps if isinstance(step, Clip))
    assert len(model.support_) < TRAIN
    assert [len(part.nodes) > 0 for part in model._expansion._parts] == [True, True]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_are_texts_or_paths(kind, tmp_path):
    model, X, _ = CASES[0].built()
    path = kind(tmp_path / "ein modell, größer.kw")
    save(model, path)
    np.testing.assert_array_equal(load(path).predict(X), model.predict(X))


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    model, X, y = CASES[0].built()
    other = fit(C(C=0.01), X, y)
    path = tmp_path / "model.kw"
    save(model, path)
    before, write, calls = path.read_bytes(), _archive._write_array, []

    def break_at_the_last(file, array):
        calls.append(array)
        if len(calls) == 2 * len(estimator_state(other)[1]):
            raise KeyboardInterrupt
        write(file, array)

    monkeypatch.setattr(_archive, "_write_array", break_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        save(other, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    save(other, path)
    assert load(path).C == 0.01


def test_a_file_holds_the_samples_that_count_and_no_others(tmp_path):
    X, y = kw.datasets.make_views(400, n_useful=1, n_redundant=0, n_noise=1, separation=6.0, random_state=0)
    model = fit(C(KernelBank({"useful0": [Linear(), Polynomial(2)]}, normalise="spherical")), X, y)
    assert len(model.support_) < 100
    save(model, tmp_path / "model.kw")
    sizes = {name: array.shape for name, array in read_archive(tmp_path / "model.kw").arrays.items()}
    assert all(len(shape) == 0 or max(shape) <= max(len(model.support_), model.n_iter_) for shape in sizes.values()), (
        sizes
    )
    written = (tmp_path / "model.kw").read_bytes()
    samples = [row.tobytes() in written for row in X["useful0"]]
    assert np.flatnonzero(samples).tolist() == model.support_.tolist()
    assert not any(row.tobytes() in written for row in X["noise0"])


def test_distances_between_training_samples_are_not_kept(tmp_path):
    X, Y = array()[0], tagged()[1]
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    model = kw.MLkNN(4, metric="precomputed").fit(D[:TRAIN, :TRAIN], Y[:TRAIN])
    loaded = saved_and_loaded(model, tmp_path)
    assert (tmp_path / "model.kw").stat().st_size < D[:TRAIN, :TRAIN].nbytes / 2
    new = D[TRAIN:, :TRAIN]
    assert_equal(loaded.predict_proba(new), model.predict_proba(new))


def test_a_file_holds_json_and_arrays_only(tmp_path):
    save(CASES[0].built()[0], tmp_path / "model.kw")
    with zipfile.ZipFile(tmp_path / "model.kw") as archive:
        names = archive.namelist()
        json.loads(archive.read("model.json"))
    assert names[0] == "model.json"
    assert all(name.endswith(".npy") for name in names[1:])


def test_an_estimator_among_other_things(tmp_path):
    one, X, _ = CASES[0].built()
    two, Z, _ = named("ranking tags").built()
    parts = {name: estimator_state(model, f"{name}/") for name, model in (("one", one), ("two", two))}
    content = {"labels": ["a", "b"], **{name: state for name, (state, _) in parts.items()}}
    arrays = {"thumbnails/0": np.zeros((4, 4, 3), np.uint8), **parts["one"][1], **parts["two"][1]}
    assert all(name.startswith("one/") for name in parts["one"][1])
    write_archive(tmp_path / "tagger.kw", "picture tagger", content, arrays)
    archive = read_archive(tmp_path / "tagger.kw")
    np.testing.assert_array_equal(
        estimator_from_state(archive.content["one"], archive.arrays).decision_function(X), one.decision_function(X)
    )
    assert estimator_from_state(archive.content["two"], archive.arrays).tags(Z) == two.tags(Z)
    with pytest.raises(ValueError, match=r"tagger.kw holds a 'picture tagger', not an estimator alone"):
        load(tmp_path / "tagger.kw")


# --- what cannot be kept ----------------------------------------------------------------------------------------------


class OwnKernel(Gaussian):
    pass


class OwnMachine(SVM):
    pass


class OwnClassifier(kw.MKLClassifier):
    pass


class OwnFamily(GaussianFamily):
    pass


def rated(X, Y, theta):
    return np.exp(-theta[0] * ((X[:, None] - Y) ** 2).sum(axis=2))


def draw(rng):
    return "x", Gaussian(float(rng.uniform(0.5, 2.0)))


def own_function(X, Y):
    return X @ Y.T


def metric(x, y):
    return abs(x - y).sum()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            C(FromFunction(own_function)),
            r"its kernels: FromFunction\(.*'precomputed'.*joblib.dump",
        ),
        (C([Gaussian(), Normalised(FromFunction(own_function))]), "is a function of yours"),
        (C(KernelBank({"x": [OwnKernel()]})), "its kernels: OwnKernel is a class of your own"),
        (C(Product(Linear(), OwnKernel())), "OwnKernel is a class of your own"),
        (C(machine=OwnMachine()), "its machine: OwnMachine is a class of your own"),
        (kw.MLkNN(2, metric=metric), r"its metric: <function metric.*> is a function of yours"),
        (
            kw.InfiniteKernelClassifier(ParametricFamily(rated, low=(0.1,), high=(9.0,)), max_kernels=3),
            r"its family: ParametricFamily\(.*is a function of yours.*joblib.dump",
        ),
        (
            kw.InfiniteKernelClassifier(SampledFamily(draw, draws=2), max_kernels=3, random_state=0),
            r"its family: SampledFamily\(.*is a function of yours",
        ),
        (kw.InfiniteKernelClassifier(OwnFamily(), max_kernels=3), "its family: OwnFamily is a class of your own"),
        (kw.LPBeta(C=1.0, nu=0.5, cv=StratifiedKFold(3)), "its cv: StratifiedKFold.* is of type StratifiedKFold"),
        (OwnClassifier(), "OwnClassifier is a class of your own, made from MKLClassifier"),
        (kw.OnlineMKLClassifier(), "got OnlineMKLClassifier: .* keep others with joblib.dump"),
        (GridSearchCV(C(), {"C": [1.0]}, cv=2), "got GridSearchCV: of a search save its best_estimator_"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(model, message, tmp_path):
    X, y = array()
    fit(model, X, y)
    with pytest.raises(TypeError, match=message):
        save(model, tmp_path / "model.kw")
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_a_family_of_functions_is_refused_even_without_the_family(tmp_path):
    model = kw.InfiniteKernelClassifier(ParametricFamily(rated, low=(0.1,), high=(9.0,)), max_kernels=3)
    fit(model, *array()).set_params(family=None)
    with pytest.raises(TypeError, match=r"because of its .*: FromFunction\(.* is a function of yours"):
        save(model, tmp_path / "model.kw")


def test_a_class_with_the_name_of_a_known_one_is_not_taken_for_it(tmp_path):
    Impostor = type("Gaussian", (Gaussian, Kernel), {})
    model = fit(C(Impostor()), *array())
    with pytest.raises(TypeError, match="Gaussian is a class of your own"):
        save(model, tmp_path / "model.kw")


def test_attributes_of_a_user_are_refused_by_name(tmp_path):
    model = fit(C(), *array())
    model.note = "the good one"
    with pytest.raises(TypeError, match=r"MKLClassifier has the attribute\(s\) \['note'\]"):
        save(model, tmp_path / "model.kw")


def test_classes_of_other_types_are_refused(tmp_path):
    X, y = array()
    model = fit(C(), X, y)
    model.classes_ = np.array([{1}, {2}])
    with pytest.raises(TypeError, match=r"its classes_: \{1\} is of type set"):
        save(model, tmp_path / "model.kw")


def test_a_model_that_was_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(C(), tmp_path / "model.kw")


# --- damaged and hostile files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "model.kw"
    model, X, _ = named("every kind of kernel").built()
    save(model, path)
    return path.read_bytes(), model.decision_function(X), X


@given(data=st.data())
@settings(max_examples=100)
def test_a_damaged_file_is_refused_or_the_same(data, written, tmp_path_factory):
    whole, decisions, X = written
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))]
    path = tmp_path_factory.mktemp("damaged") / "model.kw"
    path.write_bytes(damaged)
    try:
        model = load(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
    else:
        assert_equal(model.decision_function(X), decisions)


def changed(path, change, name="two classes"):
    """The file of a small model, rewritten after a change of its description and arrays."""
    model, *_ = named(name).built()
    state, arrays = estimator_state(model)
    change(state, arrays)
    write_archive(path, "estimator", state, arrays)


def put(part, key, value):
    return lambda state, arrays: state[part].update({key: value})


def put_array(key, make):
    return lambda state, arrays: arrays.update({key: make(arrays[key])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state, arrays: state.update({"is": "os"}), "unknown estimator 'os'"),
        (lambda state, arrays: state.update({"is": ["MKLClassifier"]}), "unknown estimator"),
        (lambda state, arrays: state.pop("learned"), "learned are missing"),
        (lambda state, arrays: state["learned"].pop("intercept_"), r"too much or too little: \['intercept_'\]"),
        (lambda state, arrays: arrays.pop("intercept_"), "array cannot be made of what is given: 'intercept_'"),
        (put("learned", "predict", 3), r"too much or too little: \['predict'\]"),
        (put("learned", "gap_", "small"), "gap_ is of type str"),
        (put("learned", "_expansion", None), "_expansion is of type NoneType"),
        (put("parameters", "kernels", {"is": "system", "of": "true"}), "unknown kind 'system'"),
        (put("parameters", "kernels", {"is": ["Gaussian"]}), "unknown kind"),
        (put("parameters", "kernels", {"is": "FromFunction", "function": "eval"}), "unknown kind 'FromFunction'"),
        (
            put("parameters", "kernels", {"is": "Gaussian", "multiplier": -1}),
            "multiplier of Gaussian must be",
        ),
        (put("parameters", "kernels", {"is": "Gaussian", "sigma": 1}), "unexpected keyword argument 'sigma'"),
        (put("parameters", "kernels", {"is": "dict", "of": [1]}), "dict cannot be made"),
        (put("parameters", "sigma", 1), "MKLClassifier cannot be made of its parameters: .*sigma"),
        (put_array("dual_coef_", lambda a: a[:, :-1]), "does not fit"),
        (put_array("dual_coef_", lambda a: a.astype(int)), "dual_coef_ is an array of int64"),
        (put_array("intercept_", lambda a: a.reshape(())), r"intercept_ is an array of float64 of shape \(\)"),
        (put_array("weights_", lambda a: a[:-1]), "weights_ is an array of .* does not fit the rest"),
        (put_array("classes_", lambda a: np.arange(5)), "does not fit together"),
        (put_array("_active", lambda a: a + 100), "does not fit together"),
        (put_array("_expansion", lambda a: a[:-1]), "do not fit together"),
        (put_array("_expansion", lambda a: a[0]), "do not fit together"),
        (put_array("_expansion", lambda a: a.astype(int)), "do not fit together"),
    ],
)
def test_a_file_that_does_not_describe_a_model_is_refused(change, message, tmp_path):
    changed(tmp_path / "model.kw", change)
    with pytest.raises(ValueError, match=rf"model.kw, written by .* holds no estimator .*: .*{message}"):
        load(tmp_path / "model.kw")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("one rate", put("parameters", "family", {"is": "GaussianFamily", "kind": "double"}), "kind of GaussianFamily"),
        ("one rate", put("parameters", "family", {"is": "ParametricFamily", "value": "eval"}), "unknown kind"),
        ("one rate", put("parameters", "family", {"is": "SampledFamily", "draw": "eval"}), "unknown kind"),
        ("one rate", put("learned", "kernels_", {"is": "tuple", "of": []}), "is a tuple of shape"),
        ("one rate", put("learned", "certified_", 1.0), "certified_ is of type float"),
        ("one rate", put("learned", "most_violated_", [{"is": "Violator", "name": "x"}]), "Violator cannot be made"),
        ("one weight a kernel", put_array("selected_", lambda a: a + 100), "does not fit together"),
        ("one weight a kernel", put_array("selected_", lambda a: a[:-1]), "does not fit the rest"),
        ("one weight a kernel", put_array("dual_coef_", lambda a: a[0]), "dual_coef_ is an array"),
        ("one weight a kernel", put_array("classes_", lambda a: np.arange(5)), "does not fit"),
        ("one weight a class and kernel", put_array("weights_", lambda a: a[:-1]), "does not fit the rest"),
        ("two classes boosted", put("learned", "nu_", "half"), "nu_ is of type str"),
        ("all kernel values", put("learned", "_expansion", None), "_expansion is of type NoneType"),
        ("all kernel values", put_array("intercept_", lambda a: a[:-1]), "does not fit the rest"),
        ("neighbours", put("learned", "n_neighbors_", 9), "does not fit the rest"),
        ("distance: ITML ", put_array("multipliers_", lambda a: a[:-1]), "does not fit the rest"),
        ("distance: ITML ", put_array("distance_", lambda a: a[0]), "arrays that do not fit together"),
        ("distance: ITML ", put_array("distance_", lambda a: a[:-1]), "does not fit the rest"),
        ("distance: ITML ", put_array("pairs_", lambda a: a[:-1]), "PairSet cannot be made"),
        ("distance: ITML ", put("learned", "n_features_in_", 7), "does not fit the rest"),
        (
            "distance: ITMLS ",
            put("learned", "privileged_model_", {"is": "estimator", "of": {"is": "os"}}),
            "unknown estimator 'os'",
        ),
        ("distance: ITMLS ", put("learned", "privileged_model_", {"is": "estimator"}), "unknown kind 'estimator'"),
        ("distance: ITMLS ", put("learned", "privileged_model_", None), "privileged_model_ is of type NoneType"),
        ("bags, one witness each", put_array("p_", lambda a: a[:-1]), "does not fit the rest"),
        ("few labels", put_array("candidates_", lambda a: a[:, 0]), "candidates_ is an array"),
        ("privileged features", put_array("_expansion", lambda a: a[:-1]), "do not fit together"),
    ],
)
def test_files_of_other_kinds_are_checked_as_well(name, change, message, tmp_path):
    changed(tmp_path / "model.kw", change, name)
    with pytest.raises(ValueError, match=rf"model.kw, written by .* holds no estimator .*: .*{message}"):
        load(tmp_path / "model.kw")


def test_a_description_nested_without_end_is_refused():
    state, arrays = estimator_state(CASES[0].built()[0])
    for _ in range(5000):
        state["parameters"]["kernels"] = [state["parameters"]["kernels"]]
    with pytest.raises(ValueError, match="parameters are nested without end"):
        estimator_from_state(state, arrays)


def test_rows_of_a_sparse_matrix_that_point_outside_are_refused(tmp_path):
    model, *_ = named("neighbours in a sparse matrix").built()
    state, arrays = estimator_state(model)
    name = state["learned"]["_search"]["samples"]["indices"]["name"]
    arrays[name] = arrays[name] + 1000
    with pytest.raises(ValueError, match="csr_matrix cannot be made"):
        estimator_from_state(state, arrays)


def test_a_newer_file_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(_archive, "VERSION", 3)
    monkeypatch.setattr(_archive, "__version__", "9.1")
    save(CASES[0].built()[0], tmp_path / "model.kw")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"kernelweave 9.1 with format 3, this .*: update kernelweave"):
        load(tmp_path / "model.kw")


def test_a_large_file_is_refused_unless_allowed(tmp_path):
    model, X, _ = CASES[0].built()
    save(model, tmp_path / "model.kw")
    with pytest.raises(ValueError, match="more than the limit of 1,000"):
        load(tmp_path / "model.kw", max_bytes=1000)
    np.testing.assert_array_equal(load(tmp_path / "model.kw", max_bytes=10**6).predict(X), model.predict(X))
