"""Combinations of machines that are trained on one kernel each: LP-beta, LP-B, LPBoost; and CG-Boost.

Multiple kernel learning gives all kernels one machine. Here every kernel has its own, with its own cost
(``out_of_fold.py``), and the machines are then combined (``programs.py``), by scores of samples they have not seen.
"""

from .estimators import LPB, CGBoost, LPBeta, LPBoost
from .programs import Combination, lp_b, lp_beta, lp_boost

__all__ = ["LPB", "CGBoost", "Combination", "LPBeta", "LPBoost", "lp_b", "lp_beta", "lp_boost"]
