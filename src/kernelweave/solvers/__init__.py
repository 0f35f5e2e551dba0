"""Solvers: how the weights b and the duals a are found together, and when to stop.

Every solver is a function of a :class:`Saddle`; it proposes weights, the saddle keeps the bounds and the best point.

====================  =======================================================  =======================
name                  idea                                                     file
====================  =======================================================  =======================
newton                second-order model of J on the weights                   ``newton.py``
cutting-plane         lowest point of the cuts (SILP, SIP)                     ``cutting_plane.py``
level                 the cuts, but a step to a level only                     ``level.py``
reduced-gradient      SimpleMKL: maximal steps and golden section              ``reduced_gradient.py``
projected-gradient    GMKL: gradient step (Barzilai-Borwein), projection       ``projected_gradient.py``
mirror-descent        multiplicative step on simplices (MD, VSKL)              ``mirror_descent.py``
alternating           closed-form weights (MKL-GL)                             ``alternating.py``
smo                   the joint dual, two samples at a time                    ``smo.py``
stochastic            the worst class, one label column a draw (ML-MKL-SA)     ``stochastic.py``
====================  =======================================================  =======================
"""

from .pairing import SOLVERS, check_pairing, choose, pairings, run
from .saddle import HISTORY, PUBLISHED, Point, Saddle, Stopping
from .stochastic import StochasticApproximation

__all__ = [
    "HISTORY",
    "PUBLISHED",
    "SOLVERS",
    "Point",
    "Saddle",
    "StochasticApproximation",
    "Stopping",
    "check_pairing",
    "choose",
    "pairings",
    "run",
]
