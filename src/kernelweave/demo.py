"""A guided tour in one command: ``python -m kernelweave.demo``, or ``make demo`` in a checkout.

Handwritten digits are described in five ways, views of pure noise are slipped in, and four ways of combining the views
are compared. The tables and bars go to the terminal, the pictures to a folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

from .datasets import digits_views
from .evaluation import plot_history, plot_weights, weight_bars
from .kernels import Gaussian
from .mkl import MKLClassifier
from .views import Views

NOISE_VIEWS = 5

METHODS = {
    "average": "every view counts the same",
    "best": "only the one best view (for each digit), chosen by cross-validation",
    "l1": "learned weights that may be zero: a selection of views",
    "l2": "learned weights that are all positive: a mixture of views",
}


@dataclass
class Result:
    """One fitted method with what the table shows of it."""

    model: MKLClassifier
    accuracy: float
    seconds: float

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights normalised to sum to one for each class, (n_classes, n_kernels)."""
        weights = np.atleast_2d(self.model.weights_)
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def active(self) -> float:
        """Mean number of kernels with a positive weight, over classes."""
        return float((self.weights > 0).sum(axis=1).mean())

    @property
    def noise_share(self) -> float:
        """Part of the weight that went to noise views, mean over classes."""
        noise = np.array([name.startswith("noise") for name in self.model.kernel_names_])
        return float(self.weights[:, noise].sum(axis=1).mean())


def main(arguments: list[str] | None = None) -> None:
    """Run the demonstration; see ``--help`` for its options."""
    parser = argparse.ArgumentParser(prog="python -m kernelweave.demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the pictures")
    parser.add_argument("--samples", type=int, default=900, help="training digits, 100 to 1500 (default: 900)")
    options = parser.parse_args(arguments)
    if not 100 <= options.samples <= 1500:
        parser.error(f"--samples must be between 100 and 1500, so that some are left to test on; got {options.samples}")
    console = Console(highlight=False, soft_wrap=True)

    views, y = digits_views(noise=NOISE_VIEWS, random_state=0)
    train, test = train_test_split(np.arange(len(y)), train_size=options.samples, stratify=y, random_state=0)
    _introduce(console, views, len(train), len(test))

    console.print("\nCompiling the fast parts (only the first time; the result is kept on disk) ...")
    started = time.perf_counter()
    for method in METHODS:
        _new_model(method).fit(views[train[:100]], y[train[:100]])
    console.print(f"done in {time.perf_counter() - started:.1f} s.\n")

    results = {method: _evaluate(method, views, y, train, test) for method in METHODS}
    _print_table(console, results)
    _print_bars(console, results["l1"])
    _save_pictures(console, results, options.output)


def _new_model(method: str) -> MKLClassifier:
    return MKLClassifier(kernels=Gaussian(), weights=method, random_state=0)


def _evaluate(
    method: str, views: Views, y: NDArray[np.int64], train: NDArray[np.intp], test: NDArray[np.intp]
) -> Result:
    started = time.perf_counter()
    model = _new_model(method).fit(views[train], y[train])
    seconds = time.perf_counter() - started
    return Result(model, float(model.score(views[test], y[test])), seconds)


def _introduce(console: Console, views: Views, n_train: int, n_test: int) -> None:
    described = [name for name in views.names if not name.startswith("noise")]
    console.print("[bold]kernelweave: one model from several descriptions of the same things[/bold]\n")
    console.print(f"The things: handwritten digits, {n_train} to learn from and {n_test} others to test on.")
    console.print(f"The descriptions, called views: {', '.join(described)};")
    console.print(f"and {NOISE_VIEWS} noise views: the same measurements, but of other digits picked at random.\n")
    console.print("Each view becomes a kernel, a table of how similar any two digits are in that view. The question is")
    console.print("how much each kernel should count. Four answers:\n")
    for method, meaning in METHODS.items():
        console.print(f"  [bold]{method:8}[/bold] {meaning}")


def _print_table(console: Console, results: dict[str, Result]) -> None:
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2)
    table.add_column("method", style="bold")
    for heading in ("accuracy", "active kernels", "weight on noise", "gap", "seconds"):
        table.add_column(heading, justify="right")
    n_kernels = len(next(iter(results.values())).model.kernel_names_)
    best = max(result.accuracy for result in results.values())
    for method, result in results.items():
        accuracy = f"{result.accuracy:.1%}"
        table.add_row(
            method,
            f"[green]{accuracy}[/green]" if result.accuracy == best else accuracy,
            f"{result.active:.1f} of {n_kernels}",
            f"{result.noise_share:.1%}",
            f"{np.max(result.model.gap_):.1e}",
            f"{result.seconds:.2f}",
        )
    console.print(table)
    console.print("accuracy         share of test digits recognised.")
    console.print("active kernels   how many kernels have a weight above zero (mean over the ten digits).")
    console.print(
        "weight on noise  share of all weight given to the noise views; nobody told the methods which these are."
    )
    console.print("gap              the certificate: the objective reached is proven to be within this fraction of the")
    console.print("                 best possible (worst of the ten digits), for fixed weights the best with these.")
    console.print("seconds          time to learn all ten digits, one against the rest, kernels included.\n")


def _print_bars(console: Console, result: Result) -> None:
    console.print("[bold]Weights that l1 learned[/bold], mean over the ten digits:\n")
    console.print(weight_bars(result.model), markup=False)
    console.print()


def _save_pictures(console: Console, results: dict[str, Result], folder: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        console.print('No pictures: they need matplotlib (pip install "kernelweave[plots]").', markup=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, Callable[..., object]] = {"weights.png": plot_weights, "gap.png": plot_history}
    for name, draw in drawings.items():
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        FigureCanvasAgg(figure)  # never opens a window, whatever the user's default is
        for ax, method in zip(figure.subplots(1, 2), ("l1", "l2"), strict=True):
            draw(results[method].model, ax=ax)
            ax.set_title(f"{method}: {METHODS[method]}", fontsize="medium")
        figure.savefig(folder / name, dpi=120)
    console.print("Pictures of the weights and of the gap over time:", *(str(folder / name) for name in drawings))


if __name__ == "__main__":
    main()
