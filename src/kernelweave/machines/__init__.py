"""Machines: what is learned on ONE kernel. Any of them goes with any weight set and any wrapper solver.

========================  ==========================================  ==================
machine                   problem                                     file
========================  ==========================================  ==================
:class:`SVM`              hinge loss, cost C, with or without a bias  ``svm.py``
:class:`NuSVM`            hinge loss, share nu of margin errors       ``svm.py``
:class:`Ridge`            squared loss                                ``ridge.py``
========================  ==========================================  ==================

Label ranking machines belong here too. The compiled dual solver of the hinge machines is ``decomposition.py``.
"""

from .base import Machine, Solution
from .ridge import Ridge
from .svm import SVM, NuSVM

__all__ = ["SVM", "Machine", "NuSVM", "Ridge", "Solution"]
