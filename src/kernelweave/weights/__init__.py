"""Weight sets: the set B that the kernel weights b come from, and the penalty R(b) on them.

================  ==========================================  =========================================  ==============
name              B (always b >= 0)                           R(b)                                       file
================  ==========================================  =========================================  ==============
Fixed             {given}                                     0                                          fixed.py
Average           {1/s}                                       0                                          fixed.py
Sum               {1}                                         0                                          fixed.py
Single            {one kernel}                                0                                          fixed.py
Best              {the best kernel by cross-validation}       0                                          chosen.py
Alignment         {best aligned with the targets}             0                                          chosen.py
Simplex           sum b = 1                                   0                                          simplex.py
Entropy           sum b = 1                                   tau sum b ln b                             simplex.py
CappedSimplex     sum b = 1, b <= theta = 1/(nu s)            0                                          capped.py
ElasticNet        sum b = 1                                   sum b^2 / (2 theta)                        soft_margin.py
PowerPenalty      sum b = 1                                   s^(p-1)/p sum b^p, s = 2(p-1)/(theta p)    soft_margin.py
Grouped           sum b = 1 in each group                     0 (r > 1: factors of the adversary)        grouped.py
GroupSparse       sum_t ||b_t||_p <= 1, ||b_t||_p <= theta    0                                          group_sparse.py
LpBall            ||b||_p <= 1                                0                                          lp.py
TikhonovLp        all b >= 0                                  strength/2 ||b||_p^2                       lp.py
ElasticNetBall    v sum b + (1-v) sum b^2 <= 1                0                                          elastic.py
BlockElasticNet   b < 1/mu                                    1/2 (1-mu)^2 sum b / (1 - mu b)            elastic.py
================  ==========================================  =========================================  ==============

A set is a frozen dataclass; `WeightSet` in ``base.py`` says what solvers may ask of it.
"""

from .base import LinearConstraints, Unsupported, WeightSet
from .capped import CappedSimplex
from .chosen import Alignment, Best
from .elastic import BlockElasticNet, ElasticNetBall
from .fixed import Average, Fixed, Single, Sum
from .group_sparse import GroupSparse
from .grouped import Grouped
from .lp import LpBall, TikhonovLp
from .parse import parse_weights
from .simplex import Entropy, Simplex
from .soft_margin import ElasticNet, PowerPenalty

__all__ = [
    "Alignment",
    "Average",
    "Best",
    "BlockElasticNet",
    "CappedSimplex",
    "ElasticNet",
    "ElasticNetBall",
    "Entropy",
    "Fixed",
    "GroupSparse",
    "Grouped",
    "LinearConstraints",
    "LpBall",
    "PowerPenalty",
    "Simplex",
    "Single",
    "Sum",
    "TikhonovLp",
    "Unsupported",
    "WeightSet",
    "parse_weights",
]
