"""Machines: what is learned on ONE kernel. Any of them goes with any weight set and any wrapper solver.

========================  ==========================================  ==================
machine                   problem                                     file
========================  ==========================================  ==================
:class:`SVM`              hinge loss, cost C, with or without a bias  ``svm.py``
:class:`NuSVM`            hinge loss, share nu of margin errors       ``svm.py``
:class:`SquaredHinge`     squared hinge loss, a weight a label        ``squared_hinge.py``
:class:`Ridge`            squared loss                                ``ridge.py``
:class:`ROCArea`          pairs of samples in order, within a label   ``roc.py``
:class:`WorstClass`       the label column that is hardest            ``worst_class.py``
:class:`MLRL1`            labels in order, within a sample            ``ranking.py``
:class:`MLRPairwise`      the same, every pair of labels              ``ranking.py``
:class:`MLRGL`            the same, errors pooled by label            ``ranking.py``
========================  ==========================================  ==================

The compiled dual solver of the hinge machines is ``decomposition.py``; that of the ranking machines is
``ranking_ascent.py`` with its loops in ``ranking_loops.py``. Kernels that are no arrays are asked for products
(``products.py``) or for their features (``linear_descent.py``).
"""

from . import device_systems, linear_descent, low_rank_systems, products  # noqa: F401  (on kernels that are no arrays)
from .base import Machine, Solution
from .ranking import MLRGL, MLRL1, MLRPairwise
from .ridge import Ridge
from .roc import ROCArea
from .squared_hinge import SquaredHinge
from .svm import SVM, NuSVM
from .worst_class import WorstClass

__all__ = [
    "MLRGL",
    "MLRL1",
    "SVM",
    "MLRPairwise",
    "Machine",
    "NuSVM",
    "ROCArea",
    "Ridge",
    "Solution",
    "SquaredHinge",
    "WorstClass",
]
