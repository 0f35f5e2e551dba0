"""Pictures and text bars, drawn from hand-made results so that what must appear is known exactly."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from kernelweave.evaluation import plot_history, plot_weights, weight_bars

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def history(upper, lower):
    upper, lower = np.asarray(upper, dtype=float), np.asarray(lower, dtype=float)
    rows = np.zeros(len(upper), dtype=[(name, float) for name in ("iteration", "upper", "lower", "gap", "seconds")])
    rows["iteration"], rows["seconds"] = np.arange(len(upper)), 0.1 * np.arange(len(upper))
    rows["upper"], rows["lower"], rows["gap"] = upper, lower, (upper - lower) / upper
    return rows


BINARY = SimpleNamespace(
    weights_=np.array([0.5, 0.25, 0.0]),
    kernel_names_=["first", "second", "third"],
    history_=history([10.0, 9.0, 8.5], [4.0, 8.0, 8.5]),
)
THREE_CLASSES = SimpleNamespace(
    weights_=np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]),
    kernel_names_=("a", "b"),
    classes_=np.array(["x", "y", "z"]),
    history_=[history([3.0, 2.0], [1.0, 2.0]) for _ in range(3)],
)


def test_binary_weights_are_bars_in_bank_order():
    ax = plot_weights(BINARY)
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.25, 0.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second", "third"]
    bottom, top = ax.get_ylim()
    assert bottom > top  # the first kernel is drawn on top


def test_weights_a_class_are_a_heat_map():
    ax = plot_weights(THREE_CLASSES)
    np.testing.assert_array_equal(ax.images[0].get_array(), THREE_CLASSES.weights_.T)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize("draw", [plot_weights, plot_history])
def test_draws_where_it_is_told(draw):
    _, ax = plt.subplots()
    assert draw(BINARY, ax=ax) is ax


def test_one_history_shows_the_gap_and_both_bounds():
    ax = plot_history(BINARY, x="iteration")
    lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    np.testing.assert_allclose(lines["gap"], [0.6, 1 / 9, 0.0])
    np.testing.assert_allclose(lines["upper bound - best lower bound"], np.array([1.5, 0.5, 0.0]) / 8.5)
    np.testing.assert_allclose(lines["best upper bound - lower bound"], np.array([4.5, 0.5, 0.0]) / 8.5)
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "iteration"


def test_seconds_axis_and_bare_history():
    ax = plot_history(BINARY.history_)
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [0.0, 0.1, 0.2])
    assert ax.get_xlabel() == "seconds"


@pytest.mark.parametrize(
    ("models", "labels"),
    [
        ({"l1": BINARY, "l2": BINARY}, ["l1", "l2"]),
        ([BINARY, BINARY.history_], ["0", "1"]),
        (THREE_CLASSES, ["class x", "class y", "class z"]),
        ({"l1": BINARY, "ovr": THREE_CLASSES}, ["l1", "ovr class x", "ovr class y", "ovr class z"]),
    ],
)
def test_several_histories_are_one_gap_line_each(models, labels):
    ax = plot_history(models)
    assert [line.get_label() for line in ax.get_lines()] == labels


def test_text_bars_are_proportional_and_aligned():
    lines = weight_bars(BINARY, width=8).splitlines()
    assert lines == ["first   ████████  0.500", "second  ████      0.250", "third             0"]


def test_text_bars_of_several_classes_show_the_mean():
    assert weight_bars(THREE_CLASSES, width=2).splitlines() == ["a  ██  0.500", "b  ██  0.500"]


def test_a_small_weight_is_still_seen_and_a_zero_is_not():
    model = SimpleNamespace(weights_=[1.0, 1e-6, 0.0], kernel_names_=["a", "b", "c"])
    _, small, zero = weight_bars(model, width=10).splitlines()
    assert small.split() == ["b", "▏", "<0.001"]
    assert zero.split() == ["c", "0"]


def test_all_zero_weights_draw_nothing():
    model = SimpleNamespace(weights_=[0.0, 0.0], kernel_names_=["a", "b"])
    assert [line.split() for line in weight_bars(model).splitlines()] == [["a", "0"], ["b", "0"]]


def test_an_unfitted_model_is_refused():
    class Unfitted:
        pass

    with pytest.raises(NotFittedError, match="Unfitted has no weights_ yet"):
        plot_weights(Unfitted())
    with pytest.raises(NotFittedError, match="Unfitted has no weights_ yet"):
        weight_bars(Unfitted())
    with pytest.raises(NotFittedError, match="Unfitted has no history_"):
        plot_history(Unfitted())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="got 'minutes'"):
        plot_history(BINARY, x="minutes")
    with pytest.raises(ValueError, match="no models"):
        plot_history([])
    with pytest.raises(ValueError, match="at least one character; got 0"):
        weight_bars(BINARY, width=0)
    with pytest.raises(ValueError, match=r"shape \(3,\) and kernel_names_ 2 names"):
        weight_bars(SimpleNamespace(weights_=[1.0, 2.0, 3.0], kernel_names_=["a", "b"]))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"kernelweave\[plots\]"):
        plot_weights(BINARY)
