"""Linear programs that are nearly the last one again, solved by HiGHS from where the last one ended.

    min  cost.x     with  A x <= limits,  the last row an equality,     0 <= x <= most      [the last columns: x free]

Rows and columns come and go between one program and the next. They have names, integers that stay; what is known of a
name, whether it was in the basis and at which bound it was, is where the simplex method begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from highspy import HighsBasisStatus as Status
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Feasibility asked of the solver, its smallest.
TOLERANCE = 1e-10
_LOWER, _BASIC, _UPPER, _ZERO = (int(each) for each in (Status.kLower, Status.kBasic, Status.kUpper, Status.kZero))
#: By their numbers, 0 to 4.
_STATUS = np.array([Status.kLower, Status.kBasic, Status.kUpper, Status.kZero, Status.kNonbasic], dtype=object)


@dataclass
class Columns:
    """A sparse matrix: the entries of column j are at ``starts[j] : starts[j + 1]``.

    As SciPy's csc_array, without the checks, which take as long as solving a program that is nearly the last one.
    """

    values: Array
    rows: Index
    starts: Index


@dataclass
class Program:
    """A linear program.

    Attributes
    ----------
    cost, most : array of shape (n_columns,)
    A : Columns
    limits : array of shape (n_rows,)
    n_free : int
        How many of the last columns have no bounds.
    columns, rows : array of int
        Their names.
    """

    cost: Array
    most: Array
    A: Columns
    limits: Array
    n_free: int
    columns: Index
    rows: Index


class WarmSolver:
    """Solves one program after the other.

    Parameters
    ----------
    n_columns, n_rows : int
        Names are below these.
    """

    def __init__(self, n_columns: int, n_rows: int) -> None:
        self._highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("presolve", "off"),
            ("simplex_scale_strategy", 0),  # scores are scaled already
            ("primal_feasibility_tolerance", TOLERANCE),
            ("dual_feasibility_tolerance", TOLERANCE),
        ):
            self._highs.setOptionValue(option, value)
        # Columns that are new are at their bound of zero, and rows that are new have slack: that changes nothing.
        self._columns = np.full(n_columns, _LOWER, dtype=np.int8)
        self._rows = np.full(n_rows, _BASIC, dtype=np.int8)
        self._begun = False

    def solve(self, program: Program) -> tuple[Array, Array]:
        """The solution x, and the multipliers of the rows: how the optimum changes with their limits.

        By the simplex method, and by interior points, without a start, should that fail.
        """
        for solver in ("simplex", "ipm"):
            self._pass(program)
            if self._begun and solver == "simplex":
                self._set_basis(program)
            self._highs.setOptionValue("solver", solver)
            self._highs.run()
            if self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                self._remember(program)
                solution = self._highs.getSolution()
                return np.array(solution.col_value), np.array(solution.row_dual)
        what = self._highs.modelStatusToString(self._highs.getModelStatus())
        raise RuntimeError(f"The linear program for the weights could not be solved: {what}")

    def _pass(self, program: Program) -> None:
        n_rows, n_columns = len(program.limits), len(program.cost)
        least = np.zeros(n_columns)
        least[n_columns - program.n_free :] = -np.inf
        below = np.full(n_rows, -np.inf)
        below[-1] = program.limits[-1]
        self._highs.passModel(
            n_columns,
            n_rows,
            len(program.A.values),
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            program.cost,
            least,
            program.most,
            below,
            program.limits,
            program.A.starts.astype(np.int32),
            program.A.rows.astype(np.int32),
            program.A.values,
            np.zeros(n_columns, dtype=np.int32),
        )

    def _set_basis(self, program: Program) -> None:
        known = self._columns[program.columns]
        known[(known == _UPPER) & np.isinf(program.most)] = _LOWER
        free = known[len(known) - program.n_free :]
        free[free == _LOWER] = _ZERO
        basis = highspy.HighsBasis()
        basis.col_status = _STATUS[known].tolist()
        basis.row_status = _STATUS[self._rows[program.rows]].tolist()
        basis.valid = basis.alien = True  # alien: there may be too many rows and columns in it, or too few
        self._highs.setBasis(basis)

    def _remember(self, program: Program) -> None:
        basis = self._highs.getBasis()
        self._begun = basis.valid
        if basis.valid:
            self._columns[program.columns] = [each.value for each in basis.col_status]
            self._rows[program.rows] = [each.value for each in basis.row_status]
