"""Programs solved one after the other against SciPy, each from nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csc_array

from kernelweave.boosting.warm import Columns, Program, WarmSolver


def as_columns(A):
    sparse = csc_array(A)
    return Columns(sparse.data, sparse.indices, sparse.indptr)


def dense(program):
    parts = (program.A.values, program.A.rows, program.A.starts)
    return csc_array(parts, (len(program.limits), len(program.cost))).toarray()


def some_program(rng, n_columns, n_rows, scale):
    """Duals with caps, some of them none, an edge that bounds all rows, and a sum: always solvable, never unbounded."""
    columns = np.append(np.sort(rng.choice(n_columns - 1, rng.integers(3, n_columns), replace=False)), n_columns - 1)
    rows = np.append(np.sort(rng.choice(n_rows - 1, rng.integers(1, n_rows), replace=False)), n_rows - 1)
    of_names = np.random.default_rng(0).normal(size=(n_rows, n_columns))  # the same for the same names
    A = of_names[np.ix_(rows, columns)]
    A[:, -1], A[-1] = -1.0, 1.0
    A[-1, -1] = 0.0
    most = np.where(rng.random(len(columns)) < 0.3, np.inf, scale)
    most[0] = most[-1] = np.inf
    cost = np.zeros(len(columns))
    cost[-1] = 1.0
    limits = rng.normal(size=len(rows))
    limits[-1] = 1.0
    return Program(cost, most, as_columns(A), limits, 1, columns, rows)


def from_nothing(program):
    A, bounds = dense(program), [(0.0, m) for m in program.most[:-1]] + [(None, None)]
    return linprog(program.cost, A[:-1], program.limits[:-1], A[-1:], program.limits[-1:], bounds)


@given(seed=st.integers(0, 2**32 - 1), n_columns=st.integers(4, 30), n_rows=st.integers(2, 12))
def test_every_program_of_a_row_has_its_optimum(seed, n_columns, n_rows):
    rng = np.random.default_rng(seed)
    solver = WarmSolver(n_columns, n_rows)
    for scale in (0.1, 0.3, 1.0, 0.5):
        program = some_program(rng, n_columns, n_rows, scale)
        x, multipliers = solver.solve(program)
        value = from_nothing(program).fun
        A, slack = dense(program), 1e-8
        assert program.cost @ x == pytest.approx(value, abs=1e-8)
        assert (A @ x <= program.limits + slack).all() and A[-1] @ x == pytest.approx(1.0)
        assert (x[:-1] >= -slack).all() and (x <= program.most + slack).all()
        # Multipliers bound the value from below: cost - A'u is not negative but where a column is at its cap.
        reduced = program.cost - A.T @ multipliers
        capped = np.isfinite(program.most)
        assert (multipliers[:-1] <= slack).all() and (reduced[:-1][~capped[:-1]] >= -slack).all()
        bound = program.limits @ multipliers + np.minimum(reduced[capped], 0.0) @ program.most[capped]
        assert bound == pytest.approx(value, abs=1e-7)


def test_a_program_without_a_solution_says_so():
    nowhere = as_columns([[1.0, 0.0]]), np.array([1.0])
    impossible = Program(np.zeros(2), np.array([0.5, np.inf]), *nowhere, 1, np.array([0, 1]), np.array([0]))
    with pytest.raises(RuntimeError, match=r"could not be solved: .*nfeasible"):
        WarmSolver(2, 1).solve(impossible)
