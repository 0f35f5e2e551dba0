"""kernelweave: multiple kernel learning and label ranking, from a folder of pictures to ranked tags.

Things are often described in several ways at once. Each description (a *view*) becomes one or more kernels; kernelweave
learns how much each kernel counts together with the classifier or regressor on top, and certifies how close to the
optimum it stopped.

Importing this package is cheap: everything below is loaded when it is first used.

>>> import kernelweave as kw
>>> views, y = kw.datasets.make_views(n_samples=60, random_state=0)
>>> views.names
('useful0', 'useful1', 'redundant0', 'noise0', 'noise1', 'noise2')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ambiguity, datasets, evaluation, images, kernels, labels, machines, metric, solvers, weights
    from .ambiguity import BagKernelClassifier, MIClassifier
    from .ambiguity.input_output import InputOutputKernelClassifier, InputOutputKernelClustering
    from .app.tagger import PictureTagger
    from .baselines import MLLS, MLkNN
    from .boosting import LPB, CGBoost, LPBeta, LPBoost
    from .infinite import InfiniteKernelClassifier
    from .kernels import KernelBank
    from .metric import ITML, ITMLS, ITMLPlus, PairSet, PartialITMLPlus
    from .mkl import MKLClassifier, MKLRegressor
    from .model_files import load, save
    from .online import OnlineMKLClassifier
    from .ranking import LabelRanker
    from .svm_plus import SVMPlus
    from .views import KernelStack, Views

__version__ = "0.1.0"

__all__ = [
    "ITML",
    "ITMLS",
    "LPB",
    "MLLS",
    "BagKernelClassifier",
    "CGBoost",
    "ITMLPlus",
    "InfiniteKernelClassifier",
    "InputOutputKernelClassifier",
    "InputOutputKernelClustering",
    "KernelBank",
    "KernelStack",
    "LPBeta",
    "LPBoost",
    "LabelRanker",
    "MIClassifier",
    "MKLClassifier",
    "MKLRegressor",
    "MLkNN",
    "OnlineMKLClassifier",
    "PairSet",
    "PartialITMLPlus",
    "PictureTagger",
    "SVMPlus",
    "Views",
    "__version__",
    "ambiguity",
    "datasets",
    "evaluation",
    "images",
    "kernels",
    "labels",
    "load",
    "machines",
    "metric",
    "save",
    "solvers",
    "weights",
]

_SUBMODULES = frozenset(
    {"ambiguity", "datasets", "evaluation", "images", "kernels", "labels", "machines", "metric", "solvers", "weights"}
)
_HOME_OF = {
    "BagKernelClassifier": "ambiguity",
    "CGBoost": "boosting",
    "ITML": "metric",
    "ITMLPlus": "metric",
    "ITMLS": "metric",
    "InfiniteKernelClassifier": "infinite",
    "InputOutputKernelClassifier": "ambiguity.input_output",
    "InputOutputKernelClustering": "ambiguity.input_output",
    "KernelBank": "kernels",
    "KernelStack": "views",
    "LPB": "boosting",
    "LPBeta": "boosting",
    "LPBoost": "boosting",
    "LabelRanker": "ranking",
    "MLLS": "baselines",
    "MLkNN": "baselines",
    "MIClassifier": "ambiguity",
    "MKLClassifier": "mkl",
    "MKLRegressor": "mkl",
    "OnlineMKLClassifier": "online",
    "PairSet": "metric",
    "PartialITMLPlus": "metric",
    "PictureTagger": "app.tagger",
    "SVMPlus": "svm_plus",
    "load": "model_files",
    "save": "model_files",
    "Views": "views",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use (PEP 562), so that ``import kernelweave`` itself stays instant."""
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value  # the next access does not come here
        return value
    raise AttributeError(_unknown(name))


def _unknown(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, __all__, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(n for n in __all__ if n[0] != '_')}"
    return f"module 'kernelweave' has no attribute {name!r}; {hint}"


def __dir__() -> list[str]:
    return sorted(set(__all__) | {name for name in globals() if name.startswith("__")})
