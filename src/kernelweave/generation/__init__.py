"""Column generation: banks that grow while the problem is solved.

``columns.py`` has the loop, which does not know what a column is; ``growing.py`` the bank that grows; ``search.py`` how
the next kernel of a family is found.
"""

from .columns import ROUNDS, Generated, Oracle, Proposal, Rules, Store, generate
from .growing import GrowingBank
from .search import FamilyOracle, KernelColumn

__all__ = [
    "ROUNDS",
    "FamilyOracle",
    "Generated",
    "GrowingBank",
    "KernelColumn",
    "Oracle",
    "Proposal",
    "Rules",
    "Store",
    "generate",
]
