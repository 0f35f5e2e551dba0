"""
A machine for every kernel
==========================

Multiple kernel learning gives all kernels one machine. The other way round, every kernel gets a machine of its own,
with its own cost, and the machines are combined afterwards: LP-beta finds one weight a kernel, by a linear program, for
all classes at once. Both leave out what does not help. Averages cannot.
"""

# %%
# Two useful views, and more and more noise
# -----------------------------------------
# Four classes that show in two views. Then views are added that know nothing of the classes.

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave.boosting import LPBeta
from kernelweave.kernels import Gaussian
from kernelweave.kernels.combined import geometric_mean

views, y = kw.datasets.make_views(
    n_samples=500, n_classes=4, n_useful=2, n_redundant=0, n_noise=24, separation=2.2, random_state=0
)
train, test = np.arange(200), np.arange(200, 500)
counts = [0, 3, 6, 12, 24]


def kernels(n_noise: int) -> dict[str, Gaussian]:
    return {name: Gaussian() for name in views.names[: 2 + n_noise]}


# %%
# Four ways to combine them
# -------------------------
# The product is one kernel, the geometric mean of all. LP-beta chooses the cost of each machine, and the share of
# samples that may miss the margin, by cross-validation; all others have the cost 10.

methods = {
    "average": lambda bank: kw.MKLClassifier(bank, weights="average", C=10.0),
    "product": lambda bank: kw.MKLClassifier(geometric_mean(bank), weights="average", C=10.0),
    "l1-MKL": lambda bank: kw.MKLClassifier(bank, weights="l1", C=10.0),
    "LP-beta": lambda bank: LPBeta(bank, C=(0.1, 1.0, 10.0), nu=(0.2, 0.4, 0.6, 0.8), random_state=0),
}
accuracy = {
    name: [make(kernels(count)).fit(views[train], y[train]).score(views[test], y[test]) for count in counts]
    for name, make in methods.items()
}
for name, values in accuracy.items():
    print(f"{name:8}", "  ".join(f"{value:.3f}" for value in values))

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in accuracy.items():
    ax.plot(counts, values, marker="o", label=name)
ax.set(xlabel="kernels that know nothing", ylabel="accuracy on new samples", xticks=counts)
ax.legend()
plt.show()

# %%
# What LP-beta tells
# ------------------
# The accuracy of every kernel alone comes with the fit, out of fold. The weights are sparse, and kernels without weight
# are not computed for new samples. Here l1-MKL is asked for one weight vector for all classes, as LP-beta has.

lp = LPBeta(kernels(24), C=(0.1, 1.0, 10.0), nu=(0.2, 0.4, 0.6, 0.8), random_state=0).fit(views[train], y[train])
mkl = kw.MKLClassifier(kernels(24), weights="l1", sharing="sum", C=10.0).fit(views[train], y[train])
print(f"nu {lp.nu_}, {len(lp.selected_)} kernels with weight; l1-MKL has {(mkl.weights_ > 1e-3).sum()}")

figure, axes = plt.subplots(2, 1, figsize=(7, 4.5), sharex=True, layout="constrained")
axes[0].bar(range(26), lp.kernel_accuracies_, color="grey")
axes[0].axhline(1 / 4, color="black", linestyle=":", label="by chance")
axes[0].set(ylabel="accuracy alone")
axes[0].legend()
axes[1].bar(np.arange(26) - 0.2, lp.weights_, width=0.4, label="LP-beta")
axes[1].bar(np.arange(26) + 0.2, mkl.weights_ / mkl.weights_.sum(), width=0.4, label="l1-MKL")
axes[1].set(ylabel="weight", xlabel="kernel: two useful, then noise")
axes[1].legend()
plt.show()

# %%
# The margin
# ----------
# The margin of a sample is the score of its class minus that of the nearest rival, by machines that have not seen it.
# The program makes the margin ``rho_`` large that all but a share nu keep: at most that share is left of the line.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hist(lp.margins_, bins=40, color="grey")
ax.axvline(lp.rho_, color="tab:red", label=f"rho; {np.mean(lp.margins_ < lp.rho_ - 1e-9):.2f} of the samples below it")
ax.set(xlabel="margin, out of fold", ylabel="samples")
ax.legend()
plt.show()
