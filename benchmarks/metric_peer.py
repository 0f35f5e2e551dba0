"""metric-learn's ITML on pairs from a file, for an interpreter that has it (with scikit-learn before 1.3).

    python benchmarks/metric_peer.py TASK.npz RESULT.npz

Called by metric.py. The task has `first`, `second`, shape (n_pairs, n_features), `similar`, `bounds`, `gamma`, `sweeps`
and `repeats`; the result has the processor `seconds` of every fit and the matrix. Needs nothing of kernelweave.
"""

from __future__ import annotations

import sys
import time
import warnings

import metric_learn
import numpy as np


def main():
    task = np.load(sys.argv[1])
    pairs = np.stack([task["first"], task["second"]], axis=1)
    warnings.simplefilter("ignore")
    seconds = []
    for _ in range(int(task["repeats"])):
        model = metric_learn.ITML(gamma=float(task["gamma"]), max_iter=int(task["sweeps"]), tol=0.0)
        begin = time.process_time()
        model.fit(pairs, task["similar"], bounds=task["bounds"].copy())
        seconds.append(time.process_time() - begin)
    np.savez(sys.argv[2], seconds=seconds, matrix=model.get_mahalanobis_matrix(), version=metric_learn.__version__)


main()  # a script and nothing else: `make bench` runs what has a main guard
