"""The master of the bundle methods, where the linear program is hard to solve."""

import numpy as np
import pytest
from scipy.optimize import linprog

from kernelweave.kernels import Gaussian, KernelBank
from kernelweave.machines import SVM
from kernelweave.solvers import Saddle, Stopping, bundle, run
from kernelweave.weights import CappedSimplex, Simplex


def problem(weights):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(80) % 2, 1.0, -1.0)
    X = rng.normal(size=(80, 5)) + 0.6 * y[:, None]
    bank = KernelBank([Gaussian(w) for w in (0.3, 1.0, 3.0, 10.0)]).build(X)
    return Saddle(bank, SVM(10.0), weights, y[:, None], Stopping(1e-4))


class Moody:
    """HiGHS, but only some of its calls answer."""

    def __init__(self, fails):
        self.fails, self.calls = fails, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        answer = linprog(*args, **kwargs)
        if self.fails(self.calls):
            answer.status, answer.message = 4, "Status 15"
        return answer


@pytest.mark.parametrize("solver", ["cutting-plane", "level"])
@pytest.mark.parametrize("weights", [Simplex(), CappedSimplex(nu=0.5)], ids=repr)
def test_a_program_that_fails_is_solved_another_way(solver, weights, monkeypatch):
    expected = run(solver, problem(weights))
    moody = Moody(lambda call: call % 3 != 0)
    monkeypatch.setattr(bundle, "linprog", moody)
    found = run(solver, problem(weights))
    assert moody.calls >= 3 and found.gap <= 1e-4
    assert found.upper == pytest.approx(expected.upper, rel=2e-4)


def test_a_program_that_fails_in_every_way_says_so(monkeypatch):
    monkeypatch.setattr(bundle, "linprog", Moody(lambda call: True))
    with pytest.raises(ArithmeticError, match="cutting-plane model failed: Status 15"):
        run("cutting-plane", problem(Simplex()))
