"""Problems on one device bank that read the kernels together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernelweave as kw
from kernelweave.kernels import Gaussian, KernelBank, Linear
from kernelweave.kernels.device_batches import Meeting, WeightedKernels, together
from kernelweave.machines import SVM
from kernelweave.solvers import Saddle, Stopping, run
from kernelweave.weights import Simplex


def doubled(requests):
    doubled.sizes.append(len(requests))
    return [2 * number for (number,) in requests]


@pytest.fixture(autouse=True)
def _no_calls_yet():
    doubled.sizes = []


def in_meeting(meeting, functions):
    """Every function in a thread of its own, as a member."""
    meeting.expect(len(functions))

    def one(function):
        with meeting.member():
            return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result(timeout=30) for future in [pool.submit(one, function) for function in functions]]


def test_alone_nobody_waits():
    meeting = Meeting()
    assert meeting.ask(doubled, 4) == 8
    with meeting.member():
        assert not meeting.joined
        assert meeting.ask(doubled, 5) == 10
    assert doubled.sizes == [1, 1]


def test_all_that_is_asked_is_done_at_once():
    meeting = Meeting()
    results = in_meeting(
        meeting, [lambda k=k: [meeting.ask(doubled, k), meeting.ask(doubled, 10 * k)] for k in range(4)]
    )
    assert results == [[2 * k, 20 * k] for k in range(4)]
    assert doubled.sizes == [4, 4]


def test_who_leaves_is_not_waited_for():
    meeting = Meeting()
    results = in_meeting(meeting, [lambda k=k: [meeting.ask(doubled, k) for _ in range(k)] for k in range(4)])
    assert results == [[2 * k] * k for k in range(4)]
    assert doubled.sizes == [3, 2, 1]


def test_an_error_reaches_all_that_asked_and_nobody_else():
    meeting = Meeting()

    def broken(requests):
        raise ZeroDivisionError("no")

    def ask_for_trouble():
        with pytest.raises(ZeroDivisionError):
            meeting.ask(broken, 1)
        return meeting.ask(doubled, 1)

    assert in_meeting(meeting, [ask_for_trouble, ask_for_trouble, lambda: meeting.ask(doubled, 3)]) == [2, 2, 6]


def test_announced_members_who_never_come_are_given_up(monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.device_batches.PATIENCE", 0.05)
    meeting = Meeting()
    meeting.expect(3)
    with meeting.member():
        assert meeting.joined
        assert meeting.ask(doubled, 7) == 14
    assert threading.active_count() < 50


@pytest.fixture(scope="module", params=["float32", "float64", "float16"])
def bank(request):
    pytest.importorskip("torch", reason="device banks are tested where torch is installed")
    X = np.random.default_rng(0).normal(size=(60, 4))
    return KernelBank([Gaussian(0.5), Gaussian(2.0), Linear()], dtype=request.param, device="cpu").build(X)


def test_sums_that_are_never_added_up_multiply_like_those_that_are(bank):
    rng = np.random.default_rng(1)
    weights, V = np.array([[1.0, 0.0, 0.5], [0.2, 2.0, 0.0]]), rng.normal(size=(60, 2))
    K = together([WeightedKernels(bank, row[None]) for row in weights], [1, 1])
    dense = [bank.combine(row) for row in weights]
    expected = np.hstack([D.product(v[:, None]) for D, v in zip(dense, V.T, strict=True)])
    assert_allclose(K.product(V), expected, rtol=1e-5, atol=1e-5)
    placed = K.place(V)
    assert_allclose(K.times(placed).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert_allclose(K.diagonal(), np.stack([D.diagonal() for D in dense], axis=1), rtol=1e-5)
    one, rows, columns = WeightedKernels(bank, weights[:1]), np.array([3, 50]), np.array([0, 7, 3])
    assert_allclose(one.block(rows, columns), dense[0].block(rows, columns), rtol=1e-5, atol=1e-6)
    assert one.diagonal().shape == (60,)
    part = one.restrict(np.arange(0, 60, 2))
    assert_allclose(
        part.block(np.arange(5), np.arange(5)), dense[0].block(np.arange(0, 10, 2), np.arange(0, 10, 2)), rtol=1e-5
    )


def test_problems_with_weights_of_their_own_reach_the_same_optimum_together(bank):
    rng = np.random.default_rng(2)
    Y = np.sign(rng.normal(size=(60, 3)) + 0.1)

    def solve(k):
        return run("auto", Saddle(bank, SVM(1.0), Simplex(), Y[:, [k]], Stopping(tol=1e-3)))

    alone = [solve(k) for k in range(3)]
    beside = in_meeting(bank._meeting, [lambda k=k: solve(k) for k in range(3)])
    for a, b in zip(alone, beside, strict=True):
        assert b.gap <= 1e-3
        assert_allclose(b.upper, a.upper, rtol=2e-3)


def test_fewer_threads_than_kernels_add_up_kernels_of_their_own(bank):
    for n, expected in ((2, "DeviceKernel"), (3, "WeightedKernels")):
        bank.expect(n)
        with bank.task():
            assert type(bank.combine([1.0, 1.0, 1.0])).__name__ == expected
        bank.expect(0)
    with bank.task():
        assert type(bank.combine([1.0, 1.0, 1.0])).__name__ == "DeviceKernel"


def test_a_combined_kernel_without_room_is_refused(bank, monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.device.free_memory", lambda device: 10_000)
    with pytest.raises(MemoryError, match=r"on cpu, where 10,000 are free: use fewer threads \(n_jobs\)"):
        bank.combine([1.0, 0.0, 0.0])


def test_classifiers_learn_all_classes_together():
    pytest.importorskip("torch", reason="device banks are tested where torch is installed")
    views, y = kw.datasets.make_views(n_samples=90, n_useful=1, n_noise=0, n_redundant=0, n_classes=3, random_state=0)
    kernels = [Gaussian(0.5), Gaussian(2.0)]
    models = [
        kw.MKLClassifier(KernelBank(kernels, device=device), tol=1e-4, n_jobs=n_jobs).fit(views, y)
        for device, n_jobs in ((None, None), ("cpu", 3))
    ]
    assert models[1].gap_ <= 1e-4
    assert_allclose(models[1].objective_, models[0].objective_, rtol=2e-4)


def test_a_bank_on_a_device_is_not_sent_to_processes(bank):
    import pickle

    with pytest.raises(TypeError, match="cannot be sent to other processes"):
        pickle.dumps(bank)
