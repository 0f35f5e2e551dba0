"""SVM+, ours beside a generic quadratic program solver, in one process.

    python benchmarks/privileged.py [--sizes 500 1000 2000] [--quick] [--peer-limit 300]

The peer is Clarabel through cvxpy, on the primal problem with Cholesky factors of the two kernels: the form that it
solves fastest (the dual has twice as many variables). Both are asked for the same relative gap, 1e-3; the gap that is
printed for the peer is between its value and our lower bound. A peer that took longer than --peer-limit seconds is not
run at the larger sizes of that case. What is counted is processor time, which other programs disturb less, and of the
peer only the solver, without cvxpy's own work. Run it with OMP_NUM_THREADS=1: both then have one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings

import cvxpy as cp
import numba
import numpy as np
from mkl import show

from kernelweave.machines.svm_plus import solve_plus

GAP = 1e-3
CASES = (("gaussian", 1.0, 1.0), ("gaussian", 10.0, 0.1), ("gaussian", 1.0, 1e-3), ("linear", 10.0, 1.0))


def problem(n, privileged, seed=0):
    """Noisy features and the clean ones behind them: a Gaussian kernel, a kernel of the given kind, classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], size=n)
    clean = rng.normal(size=(n, 10))
    clean[:, :2] += 1.2 * y[:, None]
    return (
        gaussian(clean + 1.5 * rng.normal(size=(n, 10))),
        gaussian(clean) if privileged == "gaussian" else (clean @ clean.T),
        y,
    )


def gaussian(X):
    squares = np.sum(X**2, axis=1)
    D = np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0.0)
    return np.exp(-D / D.mean())


def generic(K, G, y, C, lam):
    """Processor seconds in the solver and the value of the primal problem."""
    A, B = (factor(kernel) for kernel in (K, G))
    w, v, b, rho = cp.Variable(A.shape[1]), cp.Variable(B.shape[1]), cp.Variable(), cp.Variable()
    slack = B @ v + rho
    cost = 0.5 * cp.sum_squares(w) + 0.5 * lam * cp.sum_squares(v) + C * cp.sum(slack)
    program = cp.Problem(cp.Minimize(cost), [slack >= 0, cp.multiply(y, A @ w + b) >= 1 - slack])
    options = {"tol_gap_rel": GAP, "tol_gap_abs": GAP, "tol_feas": 1e-5}
    data, chain, inverse = program.get_problem_data(cp.CLARABEL, solver_opts=options)
    begin = time.process_time()
    raw = chain.solve_via_data(program, data, solver_opts=options)
    seconds = time.process_time() - begin
    program.unpack_results(raw, chain, inverse)
    return seconds, float(program.value)


def ours_of(*task, repeats=3):
    """Median processor seconds, and the solution."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        solution = solve_plus(*task, GAP)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds)), solution


def factor(kernel):
    values, vectors = np.linalg.eigh(kernel)
    kept = values > 1e-10 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 1000, 2000])
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--peer-limit", type=float, default=300.0, help="seconds")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    solve_plus(*problem(40, "gaussian"))  # compile
    print(f"{numba.get_num_threads()} threads, relative gap {GAP:g}\n")
    print(f"{'':<52s} {'ours':>11s} {'peer':>11s} {'ratio':>9s}")
    slow = set()
    for n in [100] if arguments.quick else arguments.sizes:
        for case in CASES:
            kind, C, lam = case
            K, G, y = problem(n, kind)
            ours, solution = ours_of(K, G, y, C, lam)
            name = f"n={n}, {kind} privileged kernel, C={C:g}, lam={lam:g}"
            note = f"gap {solution.gap / abs(solution.primal):.1e}, {solution.steps} steps"
            if case in slow:
                print(f"{name:<52s} {ours:9.3f} s {'not run':>11s} {'':>9s}   {note}", flush=True)
                continue
            theirs, value = generic(K, G, y, C, lam)
            show(name, ours, theirs, f"{note}; peer: gap {(value - solution.dual) / abs(value):.1e}")
            if theirs > arguments.peer_limit:
                slow.add(case)


if __name__ == "__main__":
    main()
