"""
How the solvers differ
======================

The algorithms of two decades of papers solve the same convex problem, so they agree on the optimum and differ
in how they get there. Here each of them that can handle l1 weights runs on one problem, to the same gap.
"""

# %%
# One problem, many solvers
# -------------------------
# :func:`kernelweave.solvers.pairings` says which solver goes with which weight set. The stochastic one is for the worst
# of several classes, and here there are two, so one problem.

import time

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=300, n_useful=2, n_redundant=2, n_noise=8, random_state=0)
solvers = [name for name, weight_sets in kw.solvers.pairings().items() if "Simplex()" in weight_sets]
solvers.remove("stochastic")

models = {}
for solver in solvers:
    model = kw.MKLClassifier(weights="l1", solver=solver, tol=1e-3)
    model.fit(views[:50], y[:50])  # the first call compiles
    started = time.perf_counter()
    models[solver] = model.fit(views, y)
    print(
        f"{solver:18} objective {model.objective_:.4f}   gap {model.gap_:.0e}   {model.n_svm_solves_:4d} SVM solves   "
        f"{model.kernel_adds_:5d} kernel additions   {time.perf_counter() - started:.2f} s"
    )

# %%
# The same optimum
# ----------------
# All objectives lie within the gap of each other, and the weights are nearly the same.

objectives = np.array([model.objective_ for model in models.values()])
print(f"largest relative difference between objectives: {np.ptp(objectives) / objectives.min():.1e}")
print("largest difference between weights of any two solvers:")
weights = np.stack([model.weights_ for model in models.values()])
print(f"{np.ptp(weights, axis=0).max():.3f}")

# %%
# Different paths
# ---------------
# Left by iteration, right by time. An iteration is one step of the weights, and may solve the support vector
# machine once (cutting plane, level, alternating) or several times (line searches).

figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
for ax, x in zip(axes, ("iteration", "seconds"), strict=True):
    kw.evaluation.plot_history(models, x=x, ax=ax)
    ax.set_xscale("log")
axes[1].set_ylabel("")
axes[1].get_legend().remove()
plt.show()
