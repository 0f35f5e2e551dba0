"""
Samples that lack a view, and kernels of low rank
=================================================

Not every sample is described in every way: an assay failed, a camera was off. A row of NaN says so. This example takes
more and more views away, and compares three answers: leave such samples out, set their kernels to zero, or let the
views that they have count more. Then it approximates the kernels by a few features a sample, and looks at what that
costs.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave.kernels import Gaussian, KernelBank

# %%
# Views are taken away
# --------------------
# Four views, three of them useful. Each is lost with the same chance, but every sample keeps one at least. New samples
# lack views as the training samples do, so a model that was trained on complete samples only can still be asked about
# them if it has a way to complete their kernels.

views, y = kw.datasets.make_views(n_samples=900, n_useful=3, n_redundant=0, n_noise=1, random_state=0)
train, test = np.arange(400), np.arange(400, 900)


def lose(views, chance, seed=0):
    rng = np.random.default_rng(seed)
    keeps = rng.integers(len(views.names), size=len(views))
    arrays = {name: views[name].copy() for name in views.names}
    for k, name in enumerate(views.names):
        arrays[name][(rng.random(len(views)) < chance) & (keeps != k)] = np.nan
    return kw.Views(arrays)


def complete(views):
    return np.flatnonzero(np.all([views.present(name) for name in views.names], axis=0))


chances = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
scores = {"leave such samples out": [], "zero": [], "rescale": []}
for chance in chances:
    lossy = lose(views, chance)
    whole = train[complete(lossy[train])]
    for way, found in scores.items():
        missing = "rescale" if way == "rescale" else "zero"
        rows = whole if way == "leave such samples out" else train
        model = kw.MKLClassifier(KernelBank(Gaussian(), missing=missing), weights="l2").fit(lossy[rows], y[rows])
        found.append(model.score(lossy[test], y[test]))
    row = ", ".join(f"{way} {found[-1]:.3f}" for way, found in scores.items())
    print(f"chance {chance:.1f}: {len(whole)} complete samples; {row}")

figure, axes = plt.subplots()
for way, found in scores.items():
    axes.plot(chances, found, marker="o", label=way)
axes.set(xlabel="chance that a view is missing", ylabel="accuracy", title="Training on all samples that there are")
axes.legend()

# %%
# Fewer numbers a sample
# ----------------------
# With ``rank=r`` a kernel is kept as r features a sample. The duality gap is then that of the approximated problem: it
# says nothing about the distance to the exact kernels, so that is measured here. Everything else, new samples and
# samples that lack views included, stays the same call.

lossy = lose(views, 0.2)
ranks = [5, 10, 20, 40, 80, 160]
exact = kw.MKLClassifier(KernelBank(Gaussian(), missing="rescale"), weights="l2").fit(lossy[train], y[train])
approximate = [
    kw.MKLClassifier(KernelBank(Gaussian(), missing="rescale", rank=rank), weights="l2").fit(lossy[train], y[train])
    for rank in ranks
]
figure, axes = plt.subplots()
axes.plot(ranks, [model.score(lossy[test], y[test]) for model in approximate], marker="o", label="low rank")
axes.axhline(exact.score(lossy[test], y[test]), color="grey", label="exact")
axes.set(xscale="log", xlabel="rank", ylabel="accuracy", title="What a small rank costs")
axes.legend()
plt.show()
