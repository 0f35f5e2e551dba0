"""Pictures of a fitted model: which kernels count, and how the bounds on the optimum closed in.

The pictures need matplotlib, which ``pip install "kernelweave[plots]"`` brings; `weight_bars` needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EIGHTHS = " ▏▎▍▌▋▊▉"


def plot_weights(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the kernel weights of a fitted model: bars for one weight vector, a heat map for one vector a class.

    Parameters
    ----------
    model : fitted estimator
        With ``weights_`` of shape (n_kernels,) or (n_classes, n_kernels) and ``kernel_names_``.
    ax : matplotlib Axes, optional
        Where to draw; a new figure otherwise.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=60, random_state=0)
    >>> ax = kw.evaluation.plot_weights(kw.MKLClassifier().fit(views, y))
    >>> ax.get_xlabel()
    'weight'
    """
    names, weights = _names_and_weights(model)
    ax = _axes(ax, height=1.0 + 0.3 * len(names))
    if weights.ndim == 1:
        ax.barh(np.arange(len(names)), weights, color="C0")
        ax.set_xlabel("weight")
    else:
        classes = [str(label) for label in getattr(model, "classes_", range(len(weights)))]
        image = ax.imshow(weights.T, aspect="auto", cmap="viridis", vmin=0.0)
        ax.set_xticks(np.arange(len(classes)), classes)
        ax.set_xlabel("class")
        ax.figure.colorbar(image, ax=ax, label="weight")
    ax.set_yticks(np.arange(len(names)), names)
    if weights.ndim == 1:
        ax.invert_yaxis()  # the first kernel on top, as in a heat map
    return ax


def plot_history(models: Any, x: str = "seconds", ax: Axes | None = None) -> Axes:
    """Draw how the certificate of one or several fits closed in, on a logarithmic axis.

    For one fit, three lines, all relative to the best upper bound: the gap, how far the upper bound is above the best
    lower bound, and how far the lower bound is below the best upper bound. For several fits, the gap of each.

    Parameters
    ----------
    models : fitted estimator, history, or a sequence or dict (label -> ...) of them
        A history is the structured array ``history_`` of a fitted estimator. An estimator with several classes has one
        history a class, and counts as several fits.
    x : {"seconds", "iteration"}, default="seconds"
        What the horizontal axis shows.
    ax : matplotlib Axes, optional
        Where to draw; a new figure otherwise.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import kernelweave as kw
    >>> views, y = kw.datasets.make_views(n_samples=60, random_state=0)
    >>> fits = {name: kw.MKLClassifier(weights=name).fit(views, y) for name in ("l1", "l2")}
    >>> ax = kw.evaluation.plot_history(fits, x="iteration")
    >>> [line.get_label() for line in ax.get_lines()]
    ['l1', 'l2']
    """
    if x not in ("seconds", "iteration"):
        raise ValueError(f"x must be 'seconds' or 'iteration'; got {x!r}.")
    histories = list(_labelled_histories(models))
    if not histories:
        raise ValueError("plot_history was given no models; expected a fitted estimator, a history, or several.")
    ax = _axes(ax, height=3.5)
    if len(histories) == 1:
        _, history = histories[0]
        best_upper, best_lower = history["upper"].min(), history["lower"].max()
        scale = max(abs(float(best_upper)), np.finfo(float).tiny)
        ax.plot(history[x], history["gap"], "k.-", label="gap")
        ax.plot(history[x], (history["upper"] - best_lower) / scale, "C3--", label="upper bound - best lower bound")
        ax.plot(history[x], (best_upper - history["lower"]) / scale, "C0--", label="best upper bound - lower bound")
    else:
        for label, history in histories:
            ax.plot(history[x], history["gap"], ".-", label=label)
    ax.set_yscale("log", nonpositive="mask")
    ax.set_xlabel("seconds" if x == "seconds" else "iteration")
    ax.set_ylabel("relative duality gap")
    ax.legend(fontsize="small", ncols=1 if len(histories) <= 5 else 2)
    return ax


def weight_bars(model: Any, width: int = 40) -> str:
    """Draw the kernel weights of a fitted model as lines of text, one a kernel.

    With one weight vector a class, the bars show the mean over classes.

    Parameters
    ----------
    model : fitted estimator
        With ``weights_`` of shape (n_kernels,) or (n_classes, n_kernels) and ``kernel_names_``.
    width : int, default=40
        Characters of the longest bar.

    Returns
    -------
    text : str

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from kernelweave.evaluation import weight_bars
    >>> model = SimpleNamespace(weights_=[0.75, 0.25, 0.0], kernel_names_=["colour", "texture", "noise"])
    >>> print(weight_bars(model, width=6))
    colour   ██████  0.750
    texture  ██      0.250
    noise            0
    """
    if width < 1:
        raise ValueError(f"width must be at least one character; got {width}.")
    names, weights = _names_and_weights(model)
    if weights.ndim == 2:
        weights = weights.mean(axis=0)
    longest = weights.max() if weights.max() > 0 else 1.0
    room = max(len(name) for name in names)
    return "\n".join(
        f"{name:<{room}}  {_bar(weight / longest, width):<{width}}  {_number(weight)}"
        for name, weight in zip(names, weights, strict=True)
    )


def _number(weight: float) -> str:
    """Three decimals, but zero only for a weight that is exactly zero."""
    if weight == 0:
        return "0"
    return f"{weight:.3f}" if weight >= 0.0005 else "<0.001"


def _bar(share: float, width: int) -> str:
    """A bar of share * width characters, to an eighth of a character; never nothing for a positive share."""
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return "█" * full + EIGHTHS[rest].strip()


def _names_and_weights(model: Any) -> tuple[list[str], NDArray[np.float64]]:
    if not hasattr(model, "weights_"):
        raise NotFittedError(f"{type(model).__name__} has no weights_ yet: call fit before drawing its weights.")
    weights = np.asarray(model.weights_, dtype=np.float64)
    names = [str(name) for name in model.kernel_names_]
    if weights.ndim not in (1, 2) or weights.shape[-1] != len(names) or not names:
        raise ValueError(
            f"weights_ has shape {weights.shape} and kernel_names_ {len(names)} names; expected (n_kernels,) or "
            "(n_classes, n_kernels)."
        )
    return names, weights


def _labelled_histories(models: Any) -> Iterator[tuple[str, NDArray[np.void]]]:
    """Flatten a model, a history, or a sequence or dict of either into (label, history) pairs."""
    if isinstance(models, np.ndarray) and models.dtype.names:
        yield "", models
    elif isinstance(models, Mapping):
        for label, model in models.items():
            for part, history in _labelled_histories(model):
                yield f"{label} {part}".strip(), history
    elif isinstance(models, Sequence):
        for position, model in enumerate(models):
            for part, history in _labelled_histories(model):
                yield f"{position} {part}".strip(), history
    elif isinstance(getattr(models, "history_", None), np.ndarray):
        yield "", models.history_
    elif hasattr(models, "history_"):
        yield from _labelled_histories(dict(zip(_class_labels(models), models.history_, strict=True)))
    else:
        raise NotFittedError(f"{type(models).__name__} has no history_: expected a fitted estimator or its history.")


def _class_labels(model: Any) -> list[str]:
    return [f"class {label}" for label in getattr(model, "classes_", range(len(model.history_)))]


def _axes(ax: Axes | None, height: float) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'Drawing needs matplotlib, which is not installed. Install it with: pip install "kernelweave[plots]"'
        ) from error
    return plt.subplots(figsize=(6.0, height), layout="constrained")[1] if ax is None else ax
