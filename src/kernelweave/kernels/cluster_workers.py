"""The workers of a Dask cluster, and the panels of a bank on them, replaced when their worker is lost.

Panels are Dask actors: to call all of them takes a third of the time that submitted tasks take. Dask gives a lost actor
up, so what made a panel is remembered here, and made again on a worker that is left.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .cluster_blocks import Panel, Strip, dealt

#: Seconds between two looks at a worker that has not answered yet.
GLANCE = 5.0
#: Seconds to wait for a worker with room when one was lost: a Dask nanny starts another in its place.
PATIENCE = 30.0
#: Times that a panel may be lost, one after the other, before the worker is thought to die of it.
LOSSES = 3
#: What worker processes that are started here are told. By default Dask's give freed memory back to the system at once;
#: blocks of kernels are made and freed all the time, and to get the pages again slows a build.
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
_BEFORE_START = "distributed.nanny.pre-spawn-environ"
#: Share of a worker's memory limit that panels may take: at 80 % Dask pauses it, at 95 % it is ended.
SHARE_OF_WORKER = 0.7


class ClusterGone(RuntimeError):
    """The scheduler or all workers of a cluster are out of reach."""


@dataclass(frozen=True)
class Worker:
    """A worker: its address, threads, and bytes of memory it may use (0: not limited)."""

    address: str
    threads: int
    memory: int


class Cluster:
    """A connection to the workers.

    Parameters
    ----------
    place : Client, str or int
        A client, the address of a scheduler, or how many workers to start on this machine. What is started or opened
        here is closed when the last bank on it is gone.
    """

    def __init__(self, place: Any) -> None:
        distributed = _distributed()
        self._closing: Callable[[], None] | None = None
        if isinstance(place, distributed.Client):
            self.client: Any = place
            return
        if isinstance(place, str):
            self.client, opened = _connected(place)
            started = None
        else:
            started = start_workers(place)
            self.client, opened = distributed.Client(started, set_as_default=False, direct_to_workers=True), True
        if opened:
            self._closing = weakref.finalize(self, _close, self.client, started)

    def close(self) -> None:
        """Close what was opened here; a client of the user's stays as it is."""
        if self._closing is not None:
            self._closing()

    def workers(self) -> dict[str, Worker]:
        """The workers that are there now, by address."""
        try:
            info = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=PATIENCE)
        except Exception as error:  # a client that was closed fails in many ways
            raise ClusterGone(
                f"the Dask scheduler at {_address(self.client)} does not answer any more ({type(error).__name__}): "
                "the cluster was closed or cannot be reached. Start one, and fit again with KernelBank(..., "
                "cluster=Client(...))"
            ) from error
        return {
            address: Worker(address, facts["nthreads"], int(facts["memory_limit"] or 0))
            for address, facts in info["workers"].items()
        }


def start_workers(number: int, **options: Any) -> Any:
    """A cluster of single-threaded workers on this machine; options are those of Dask's LocalCluster."""
    import dask

    distributed = _distributed()
    environment = dask.config.get(_BEFORE_START, {}) | ENVIRONMENT
    with dask.config.set({_BEFORE_START: environment}):
        # The page that Dask serves is at any port that is free.
        options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"} | options
        return distributed.LocalCluster(n_workers=number, **options)


class Panels:
    """The panels of a bank, one a worker.

    Parameters
    ----------
    cluster : Cluster
    n_kernels, n : int
        Kernels and samples of the bank.
    dtype : numpy.dtype
    setup : tuple of (method, arguments)
        Calls that every panel begins with.
    """

    def __init__(self, cluster: Cluster, n_kernels: int, n: int, dtype: Any, *setup: tuple) -> None:
        workers = list(_first_workers(cluster).values())
        self.cluster = cluster
        self._shape = (n_kernels, n, str(dtype))
        self.strips: list[list[Strip]] = dealt(n, len(workers))
        self._bytes = [n_kernels * each[-1].entries.stop * dtype.itemsize for each in self.strips]
        self._check_memory(workers)
        self._addresses = [worker.address for worker, _ in zip(workers, self.strips, strict=False)]
        self._setup: list[tuple] = list(setup)
        self._futures: list[Any] = [None] * len(self.strips)
        self._actors: list[Any] = [None] * len(self.strips)
        self._lock = threading.Lock()  # problems that are solved in threads ask one after the other
        lost = self._make(list(range(len(self.strips))), {worker.address: worker for worker in workers})
        if lost:
            self._restore(lost)

    @property
    def nbytes(self) -> int:
        """Bytes of kernel values over all workers."""
        return sum(self._bytes)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """What every panel answers to a call of one of its methods; panels that are lost on the way are made anew."""
        answers: dict[int, Any] = {}
        with self._lock:
            for _ in range(LOSSES + 1):
                missing = [panel for panel in range(len(self.strips)) if panel not in answers]
                lost = self._call(missing, method, arguments, answers)
                if not lost:
                    return [answers[panel] for panel in range(len(self.strips))]
                self._restore(lost)
        raise ClusterGone(self._lost_again())

    def add(self, method: str, *arguments: Any) -> Any:
        """The sum of all answers."""
        first, *others = self.ask(method, *arguments)
        for other in others:
            first = first + other
        return first

    def settle(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all panels, and remember the call: from now on it is what makes a panel, after `load`."""
        answers = self.ask(method, *arguments)
        self._setup = [call for call in self._setup if call[0] == "load"] + [(method, arguments)]
        return answers

    def _call(self, panels: list[int], method: str, arguments: tuple, answers: dict[int, Any]) -> list[int]:
        """Call some panels side by side, write what they answer, return those that are lost."""
        calls, lost = {}, []
        for panel in panels:
            try:
                calls[panel] = getattr(self._actors[panel], method)(*arguments)
            except RuntimeError:  # Dask knows already
                lost.append(panel)
        for panel, call in calls.items():
            while panel not in answers and panel not in lost:
                try:
                    answers[panel] = call.result(timeout=GLANCE)
                except TimeoutError:
                    there = self.cluster.workers()
                    if self._addresses[panel] not in there or self._futures[panel].status != "finished":
                        lost.append(panel)
                except OSError:
                    lost.append(panel)
        return sorted(lost)

    def _restore(self, lost: list[int]) -> None:
        """Make lost panels again."""
        for _ in range(LOSSES):
            workers = self._move(lost)
            lost = self._make(lost, workers)
            if not lost:
                return
        raise ClusterGone(self._lost_again())

    def _move(self, lost: list[int]) -> dict[str, Worker]:
        """Give lost panels a place on workers that are left, or that come to replace the lost ones; returns those."""
        deadline = time.monotonic() + PATIENCE
        waiting = list(lost)
        gone = {self._addresses[panel] for panel in lost}  # the scheduler may not have noticed yet
        while True:
            workers = {address: each for address, each in self.cluster.workers().items() if address not in gone}
            for panel in list(waiting):
                taken = [(p, a) for p, a in enumerate(self._addresses) if p not in waiting]
                room = self._with_room(workers, taken, self._bytes[panel])
                if room is not None:
                    self._addresses[panel] = room
                    waiting.remove(panel)
            if not waiting:
                return workers
            if time.monotonic() > deadline:
                raise ClusterGone(self._no_room(workers) if workers else _no_workers(self.cluster))
            time.sleep(0.2)

    def _with_room(self, workers: dict[str, Worker], taken: list[tuple[int, str]], needed: int) -> str | None:
        """The worker with the fewest bytes of kernels, if it has room for more."""
        used = dict.fromkeys(workers, 0)
        for panel, address in taken:
            if address in used:
                used[address] += self._bytes[panel]
        if not used:
            return None
        address = min(used, key=lambda each: used[each])
        limit = workers[address].memory
        return address if not limit or used[address] + needed <= SHARE_OF_WORKER * limit else None

    def _make(self, panels: list[int], workers: dict[str, Worker]) -> list[int]:
        """Put panels on their workers, and bring them to where the others are; returns those that were lost again."""
        from distributed import Actor, wait

        client = self.cluster.client
        made = {}
        for panel in panels:
            address = self._addresses[panel]
            arguments = (self.strips[panel], *self._shape, workers[address].threads)
            made[panel] = client.submit(Panel, *arguments, actor=True, workers=[address], pure=False)
        with client.as_current():  # actors speak through the client that is current when they are made
            with suppress(TimeoutError):  # a worker was lost, or is paused by Dask because its memory is full
                wait(list(made.values()), timeout=PATIENCE)
            for panel, future in made.items():
                self._futures[panel] = future
                self._actors[panel] = Actor(Panel, self._addresses[panel], future.key)
        for future in made.values():
            if future.status == "error":
                future.result()
        lost = [panel for panel, future in made.items() if future.status != "finished"]
        for method, arguments in self._setup:
            there = [panel for panel in panels if panel not in lost]
            lost += self._call(there, method, arguments, {})
        return lost

    def _check_memory(self, workers: list[Worker]) -> None:
        short = [each for each in workers if each.memory and max(self._bytes) > SHARE_OF_WORKER * each.memory]
        if short:
            raise MemoryError(
                f"the kernels need {self.nbytes:,} bytes, up to {max(self._bytes):,} on each of {len(self.strips)} "
                f"workers, but {short[0].address} has a limit of {short[0].memory:,} bytes, of which kernels may take "
                f"{SHARE_OF_WORKER:.0%}: use more workers, workers with more memory, or fewer kernels"
            )

    def _lost_again(self) -> str:
        return (
            f"workers were lost {LOSSES} times in a row while working on the same kernels: they probably lack memory "
            f"for {max(self._bytes):,} bytes of kernels each, and what it takes to compute them. Use more workers"
        )

    def _no_room(self, workers: dict[str, Worker]) -> str:
        return (
            f"a worker was lost, and none of the {len(workers)} that are left has room for its {max(self._bytes):,} "
            f"bytes of kernels: waited {PATIENCE:.0f} s for another. Use more workers, or workers with more memory"
        )


def _first_workers(cluster: Cluster) -> dict[str, Worker]:
    """The workers of a cluster, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE
    while not (workers := cluster.workers()):
        if time.monotonic() > deadline:
            raise ClusterGone(_no_workers(cluster))
        time.sleep(0.2)
    return workers


def _no_workers(cluster: Cluster) -> str:
    return (
        f"the Dask scheduler at {_address(cluster.client)} has no workers: waited {PATIENCE:.0f} s for one. Start "
        "workers, and fit again"
    )


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "an address that is closed"


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            "KernelBank(..., cluster=...) needs Dask: pip install 'kernelweave[cluster]', or dask and distributed"
        ) from error
    return distributed


def check_place(place: Any) -> None:
    """Refuse what is neither a client, nor an address, nor a number of workers."""
    if isinstance(place, str) or (isinstance(place, int) and not isinstance(place, bool) and place >= 1):
        return
    if not isinstance(place, _distributed().Client) or place.asynchronous:
        raise ValueError(
            "cluster is a dask.distributed.Client that is not asynchronous, the address of a scheduler, or the number "
            f"of workers to start on this machine, got {place!r}"
        )


def address_of(place: Any) -> Any:
    """What stands for a cluster where a client cannot go, in copies and files: the address of its scheduler."""
    return place if place is None or isinstance(place, (str, int)) else _address(place)


def _connected(address: str) -> tuple[Any, bool]:
    """A client of the scheduler at an address, and whether it was opened here: one that is there already is taken."""
    distributed = _distributed()
    try:
        current = distributed.Client.current()
        if current.scheduler is not None and current.scheduler.address == address:
            return current, False
    except ValueError:
        pass
    try:
        return distributed.Client(address, set_as_default=False), True
    except (OSError, TimeoutError) as error:
        raise ClusterGone(
            f"there is no Dask scheduler at {address}: start it, or give cluster=Client(...) of one that runs"
        ) from error


def _close(client: Any, cluster: Any) -> None:
    """Close a client and a local cluster, from whatever thread the last reference went away in."""

    def close() -> None:
        client.close()
        if cluster is not None:
            cluster.close()

    if threading.current_thread() is threading.main_thread():
        close()
    else:  # perhaps the thread that serves the client, which cannot wait for itself
        threading.Thread(target=close).start()
