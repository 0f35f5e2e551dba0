"""Banks over a Dask cluster: what the one body of tests for every bank does not ask."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelweave import Views
from kernelweave.kernels import (
    ChiSquared,
    FromFunction,
    Gaussian,
    KernelBank,
    Linear,
    Normalised,
    Polynomial,
    Precomputed,
    Product,
    Repaired,
    cluster_shared,
    cluster_workers,
)
from kernelweave.kernels.cluster import ClusterKernel
from kernelweave.kernels.cluster_blocks import HEIGHT, Means, Panel, Statistics, Waiting, dealt, waiting_of
from kernelweave.kernels.cluster_workers import ClusterGone, Panels
from kernelweave.kernels.quantities import CHI2

distributed = pytest.importorskip("distributed", reason="banks on a cluster need Dask: kernelweave[cluster]")

N = 300
KERNELS = [Gaussian(), Normalised(ChiSquared(), ("center", "trace")), Product(Gaussian(2.0), Linear())]


@pytest.fixture(scope="module")
def views():
    rng = np.random.default_rng(0)
    return Views({"a": rng.random((N, 5)), "b": rng.random((N, 3))})


@pytest.fixture(scope="module")
def packed(views):
    return KernelBank(KERNELS, dtype="float64").build(views)


@pytest.fixture(scope="module")
def staying(views, client):
    """A bank whose combined kernels stay with the workers."""
    return KernelBank(KERNELS, dtype="float64", cluster=client, memory_limit=0).build(views)


@contextmanager
def workers_of_its_own(n_workers=2):
    """A cluster that a test may break."""
    options = {"n_workers": n_workers, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield cluster, client


def end_worker(cluster, client, address):
    (worker,) = (worker for worker in cluster.workers.values() if worker.address == address)
    client.sync(worker.close)


# -- panels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_panels", "n"), [(1, 1), (2, 127), (2, 129), (3, 2000), (7, 5000)])
def test_strips_are_dealt_once_and_evenly(n_panels, n):
    panels = dealt(n, n_panels)
    rows = np.concatenate([np.arange(strip.first, strip.last) for strips in panels for strip in strips])
    assert_allclose(np.sort(rows), np.arange(n))
    for strips in panels:
        ends = [0, *(strip.entries.stop for strip in strips)]
        assert [strip.begin for strip in strips] == ends[:-1]
    sizes = [strips[-1].entries.stop for strips in panels]
    assert len(panels) == min(n_panels, -(-n // HEIGHT))
    assert max(sizes) - min(sizes) <= HEIGHT * n


@pytest.mark.parametrize("threads", [1, 2])
def test_panels_add_up_in_every_number_of_threads(views, packed, threads):
    nodes, every = packed._nodes, np.arange(packed.n_kernels)
    panels = [Panel(strips, len(nodes), N, "float64", threads) for strips in dealt(N, 3)]
    for panel in panels:
        panel.load(views, np.arange(N))
        assert panel.fill(nodes) == []
    V, weights = np.random.default_rng(1).normal(size=(N, 4)), np.arange(1.0, 1 + len(nodes))
    support = np.arange(N)
    assert_allclose(sum(p.quadratics(every, support, V) for p in panels), packed.quadratics(V))
    assert_allclose(sum(p.product(every, weights, support, V) for p in panels), packed.combine(weights) @ V)
    assert_allclose(sum(p.products(every, support, V, support) for p in panels), packed.products(V, support))


def test_kernels_of_one_quantity_share_it(packed):
    assert [(each.slot, each.view) for each in waiting_of(packed._nodes)] == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]


def test_what_waits_is_not_computed_again_after_a_journey(views, monkeypatch):
    computed, block = [], type(CHI2).block
    monkeypatch.setattr(type(CHI2), "block", lambda self, *given: [computed.append(self), block(self, *given)][1])
    kernels = [ChiSquared(), Normalised(ChiSquared(0.5), "trace")]
    nodes = KernelBank({"a": kernels}).build(views)._nodes
    (strips,) = dealt(N, 1)
    computed.clear()
    panel = Panel(strips, 2, N, "float32", 1)
    panel.load(views, np.arange(N))
    for method, *sent in (
        ("hold", [Waiting(1, "a", ChiSquared())]),
        ("answer", [Means("a", ChiSquared()), Statistics(nodes[0])]),
        ("fill", nodes),
    ):
        getattr(panel, method)(*pickle.loads(pickle.dumps(sent)))
    assert len(computed) == len(strips)


# -- combined kernels that stay -------------------------------------------------------------------------------------


def test_a_kernel_that_stays_is_multiplied_there(staying, packed):
    weights = np.array([0.5, 0.0, 2.0, 1.0, 0.3, 0.0])[: packed.n_kernels]
    K, dense = staying.combine(weights), packed.combine(weights)
    assert isinstance(K, ClusterKernel) and K.shape == (N, N) and len(K) == N
    V = np.random.default_rng(2).normal(size=(N, 3))
    assert_allclose(K.product(V), dense @ V)
    assert_allclose(K @ V[:, 0], dense @ V[:, 0])
    assert_allclose(K.times(V), dense @ V)
    few = np.where(np.arange(N)[:, None] % 50 == 7, V, 0.0)
    assert_allclose(K.product(few), dense @ few, atol=1e-12)
    assert_allclose(K.product(0 * V), 0 * V)
    assert_allclose(K.diagonal(), np.diag(dense))


def test_blocks_come_in_the_order_they_are_asked_for(staying, packed):
    weights = np.ones(packed.n_kernels)
    rows, columns = np.array([200, 3, 131, 3]), np.array([5, 299, 128, 127, 0])
    block = staying.combine(weights).block(rows, columns)
    assert_allclose(block, packed.combine(weights)[np.ix_(rows, columns)])


def test_blocks_on_the_diagonal_come_all_at_once(staying, packed, monkeypatch):
    weights = np.ones(packed.n_kernels)
    K, dense = staying.combine(weights), packed.combine(weights)
    asked, ask = [], Panels.ask
    monkeypatch.setattr(Panels, "ask", lambda self, *call: [asked.append(call[0]), ask(self, *call)][1])
    V = np.random.default_rng(4).normal(size=(N, 2))
    running = K.running(dense @ V)
    for first in range(0, N, 90):
        rows = slice(first, min(first + 90, N))
        assert_allclose(running.block(rows), dense[rows, rows])
        running.add(rows, V[rows])
        assert_allclose(running.at(rows), (dense @ V)[rows] + dense[rows, : rows.stop] @ V[: rows.stop])
    assert asked == ["squares"] + 4 * ["product"]


def test_workers_keep_one_sum_and_make_others_when_asked(staying, packed):
    first, second = np.eye(packed.n_kernels)[[0, 2]]
    v = np.arange(N, dtype=float)[:, None]
    one, other = staying.combine(first), staying.combine(second)
    for _ in range(2):
        assert_allclose(one.product(v), packed.gram(0) @ v)
        assert_allclose(other.product(v), packed.gram(2) @ v)
    assert_allclose(staying.select([2]).combine([1.0]).product(v), packed.gram(2) @ v)


def test_a_kernel_that_stays_is_restricted_there(staying, packed):
    few = np.array([7, 250, 100, 3])
    part = staying.combine(np.ones(packed.n_kernels)).restrict(few)
    assert isinstance(part, ClusterKernel)
    assert_allclose(part.product(np.eye(4)), packed.combine(np.ones(packed.n_kernels))[np.ix_(few, few)])


def test_what_is_too_large_to_bring_is_refused(staying, monkeypatch):
    monkeypatch.setattr("kernelweave.kernels.cluster.BROUGHT", 1000)
    some = np.arange(20)
    with pytest.raises(MemoryError, match=r"20 rows and 20 columns needs 3,200 bytes.*'level'"):
        staying.combine(np.ones(staying.n_kernels)).block(some, some)
    assert not staying.has_blocks
    with pytest.raises(TypeError, match="whole kernel matrix"):
        np.asarray(staying.combine(np.ones(staying.n_kernels)))


def test_a_combined_kernel_is_written_to_shared_memory_or_sent(views, packed, client, monkeypatch):
    bank = KernelBank(KERNELS, dtype="float64", cluster=client).build(views)
    first, second = np.arange(1.0, 1 + packed.n_kernels), np.ones(packed.n_kernels)
    monkeypatch.setattr(cluster_shared, "SHARED_FROM", 1)
    K = bank.combine(first)
    assert_allclose(K, packed.combine(first))
    path = cluster_shared.path_of(K)
    if cluster_shared.FOLDER.is_dir():
        assert path is not None
        assert bank.combine(second, out=K) is K
        assert_allclose(K, packed.combine(second))
        os.unlink(path)  # as if the workers were elsewhere
    assert_allclose(bank.combine(first, out=K), packed.combine(first))
    del K
    monkeypatch.setattr(cluster_shared, "FOLDER", cluster_shared.FOLDER / "nowhere")
    assert type(bank.combine(first)) is np.ndarray
    gc.collect()
    assert path is None or not os.path.exists(path)


def test_files_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_shared, "FOLDER", tmp_path)
    monkeypatch.setattr(cluster_shared, "SHARED_FROM", 1)
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    for pid in (finished.pid, os.getpid(), "x"):
        (tmp_path / f"kernelweave-{pid}-0").touch()
    array = cluster_shared.shared(3, np.dtype("float32"))
    names = {path.name for path in tmp_path.iterdir()} - {os.path.basename(cluster_shared.path_of(array))}
    assert names == {f"kernelweave-{os.getpid()}-0", "kernelweave-x-0"}


# -- workers that are lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost_at", ["hold", "answer", "fill", "quadratics", "combined"])
def test_a_lost_worker_is_made_up_for(views, packed, lost_at, monkeypatch):
    ask, ended = Panels.ask, []
    V = np.random.default_rng(3).normal(size=(N, 2))
    weights = np.ones(packed.n_kernels)
    with workers_of_its_own() as (cluster, client):

        def breaking(self, method, *arguments):
            if method == lost_at and not ended:
                ended.append(self._addresses[1])
                end_worker(cluster, client, ended[0])
            return ask(self, method, *arguments)

        monkeypatch.setattr(Panels, "ask", breaking)
        bank = KernelBank(KERNELS, dtype="float64", cluster=client).build(views)
        assert_allclose(bank.quadratics(V), packed.quadratics(V))
        assert_allclose(bank.combine(weights), packed.combine(weights))
        assert ended and len(client.nthreads()) == 1


def test_a_worker_that_dies_of_the_work_is_not_replaced_for_ever(views, monkeypatch):
    ask = Panels.ask
    with workers_of_its_own(5) as (cluster, client):
        bank = KernelBank(Gaussian(), cluster=client).build(views)

        def breaking(self, panels, method, arguments, answers):
            if method == "diagonals":
                end_worker(cluster, client, self._addresses[0])
                return [0]
            return call(self, panels, method, arguments, answers)

        call = Panels._call
        monkeypatch.setattr(Panels, "_call", breaking)
        with pytest.raises(ClusterGone, match=r"lost 3 times in a row.*probably lack memory"):
            bank.diagonals()
    assert ask is Panels.ask


def test_no_worker_left_is_an_error_and_no_hang(views, monkeypatch):
    monkeypatch.setattr(cluster_workers, "PATIENCE", 0.5)
    with workers_of_its_own(1) as (cluster, client):
        bank = KernelBank(Gaussian(), cluster=client).build(views)
        end_worker(cluster, client, bank._panels._addresses[0])
        with pytest.raises(ClusterGone, match=r"has no workers: waited .* Start workers, and fit again"):
            bank.diagonals()
        with pytest.raises(ClusterGone, match="has no workers"):
            KernelBank(Gaussian(), cluster=client).build(views)


def test_a_cluster_that_was_closed_is_an_error_and_no_hang(views):
    with workers_of_its_own() as (_, client):
        bank = KernelBank(Gaussian(), cluster=client).build(views)
    with pytest.raises(ClusterGone, match=r"does not answer any more.*Start one"):
        bank.diagonals()
    with pytest.raises(ClusterGone, match="does not answer any more"):
        KernelBank(Gaussian(), cluster=client).build(views)


def test_room_for_a_lost_panel_is_looked_for(views, monkeypatch):
    monkeypatch.setattr(cluster_workers, "PATIENCE", 0.5)
    with workers_of_its_own() as (cluster, client):
        bank = KernelBank(Gaussian(), cluster=client).build(views)
        limits(monkeypatch, 1 + int(1.5 * max(bank._panels._bytes)))
        end_worker(cluster, client, bank._panels._addresses[0])
        with pytest.raises(ClusterGone, match="none of the 1 that are left has room for its"):
            bank.diagonals()


def limits(monkeypatch, memory):
    """Say that all workers have so many bytes."""
    workers = cluster_workers.Cluster.workers

    def limited(self):
        return {a: cluster_workers.Worker(a, each.threads, memory) for a, each in workers(self).items()}

    monkeypatch.setattr(cluster_workers.Cluster, "workers", limited)


def test_too_little_memory_is_foreseen(views, client, monkeypatch):
    limits(monkeypatch, 100_000)
    with pytest.raises(MemoryError, match=r"need [\d,]+ bytes, up to .* on each of 2 workers.*limit of 100,000 bytes"):
        KernelBank(KERNELS, cluster=client).build(views)


# -- bad input --------------------------------------------------------------------------------------------------------


def signed(X, Y):
    return -(X @ Y.T)


def infinite(X, Y):
    return np.where(X[:, :1] > 0.99, np.inf, 1.0) * np.where(Y[:, 0] > 0.99, np.inf, 1.0)


def test_kernels_that_workers_cannot_build_are_refused_by_name(views, client):
    K = np.eye(N)
    with pytest.raises(ValueError, match=r"'K:Precomputed' is precomputed on view 'K'.*give the features"):
        KernelBank({"K": Precomputed()}, cluster=client).build({"K": K})
    with pytest.raises(ValueError, match=r"'a:.*' is repaired by 'clip', which needs all of its values in one memory"):
        KernelBank({"a": Product(Repaired(FromFunction(signed)), Linear())}, cluster=client).build(views)
    with pytest.raises(ValueError, match="precomputed kernels are in memory already"):
        KernelBank("precomputed", cluster=client)
    with pytest.raises(ValueError, match=r"cluster keeps exact kernels over workers, and storage='memmap'"):
        KernelBank(Gaussian(), cluster=client, storage="memmap")
    with pytest.raises(ValueError, match=r"and rank=4 elsewhere"):
        KernelBank(Gaussian(), cluster=client, rank=4)
    incomplete = Views({"a": np.vstack([np.full((1, 5), np.nan), views["a"][1:]]), "b": views["b"]})
    with pytest.raises(ValueError, match="lack a view"):
        KernelBank(Gaussian(), cluster=client, missing="zero").build(incomplete)


@pytest.mark.parametrize("place", [0, -2, True, 2.5, object()])
def test_what_is_no_cluster_is_refused(place):
    with pytest.raises(ValueError, match=r"cluster is a dask.distributed.Client.* got"):
        KernelBank(Gaussian(), cluster=place)


def test_an_address_without_a_scheduler_is_refused(views, monkeypatch):
    import dask

    soon = dask.config.set({"distributed.comm.timeouts.connect": "200ms"})
    with soon, pytest.raises(ClusterGone, match=r"no Dask scheduler at tcp://127.0.0.1:9"):
        KernelBank(Gaussian(), cluster="tcp://127.0.0.1:9").build(views)


def test_without_dask_it_is_said_what_to_install(monkeypatch, views):
    bank = KernelBank(Gaussian(), cluster=2)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"needs Dask: pip install 'kernelweave\[cluster\]'"):
        bank.build(views)


def test_values_are_checked_as_in_one_process(views, client):
    functions = FromFunction(signed), FromFunction(infinite)
    for kernel in (*functions, Polynomial(90), Normalised(Polynomial(90), "trace")):
        huge = views if isinstance(kernel, FromFunction) else {"a": 1e3 * views["a"]}
        errors = []
        for place in ({}, {"cluster": client}):
            with pytest.raises(ValueError) as error:
                KernelBank({"a": kernel}, **place).build(huge)
            errors.append(str(error.value))
        start = min(len(errors[0]), 30)
        assert errors[1][:start] == errors[0][:start]
    same = {"a": np.ones((40, 2))}
    with pytest.warns(UserWarning, match=r"all training samples are equal in view 'a'.*\['a:Gaussian'\]"):
        KernelBank(Gaussian(), cluster=client).build(same)
    with pytest.raises(ValueError, match="view 'a' has the negative value"):
        KernelBank(ChiSquared(), cluster=client).build({"a": -views["a"]})


# -- copies, and local clusters --------------------------------------------------------------------------------------


def test_copies_have_the_address_of_the_scheduler(views, client):
    spec = KernelBank(Gaussian(), cluster=client)
    address = client.scheduler.address
    assert copy.deepcopy(spec).cluster == pickle.loads(pickle.dumps(spec)).cluster == address
    assert_allclose(copy.deepcopy(spec).build(views).gram(0), spec.build(views).gram(0))
    with pytest.raises(TypeError, match=r"cannot be sent to other processes.*build it there"):
        pickle.dumps(spec.build(views))


def test_a_bank_that_is_forgotten_leaves_the_workers(views):
    with workers_of_its_own() as (_, client):

        def tasks():
            return client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))

        bank = KernelBank(Gaussian(), cluster=client).build(views)
        assert len(tasks()) == 2
        del bank
        gc.collect()
        deadline = time.monotonic() + 10
        while tasks() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert tasks() == []
