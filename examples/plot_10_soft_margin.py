"""
From sparse to even: soft margins on kernels
============================================

l1 weights demand that a kernel be among the best to count at all; equal weights demand nothing. In between lies
soft-margin MKL: every kernel is asked to reach a common margin, and may miss it at a price. The price caps what a
kernel can earn, so that no few of them take it all.
"""

# %%
# Weights against nu
# ------------------
# :class:`kernelweave.weights.CappedSimplex` lets no weight exceed ``1 / (nu * n_kernels)``. At most a share ``nu`` of
# the kernels is at the cap and at least a share ``nu`` has weight, so ``nu`` says how many kernels to use.
# ``nu=1/n_kernels`` is l1, ``nu=1`` is the average.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, train_test_split

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=400, n_useful=5, n_redundant=0, n_noise=7, separation=1.2, random_state=0)
train, test = train_test_split(np.arange(len(y)), test_size=0.4, random_state=0)
kernels = kw.kernels.Gaussian()
n_kernels = 12

shares = np.linspace(1 / n_kernels, 1, 12)
capped = [
    kw.MKLClassifier(kernels=kernels, weights=kw.weights.CappedSimplex(nu=nu)).fit(views[train], y[train])
    for nu in shares
]
for nu, model in zip(shares[::2], capped[::2], strict=True):
    weights = model.weights_
    at_cap = np.count_nonzero(weights >= (1 - 1e-6) / (nu * n_kernels))
    print(
        f"{at_cap:2d} at the cap <= {nu * n_kernels:.0f} <= {np.count_nonzero(weights):2d} have weight   "
        f"(nu = {nu:.2f}, accuracy {model.score(views[test], y[test]):.3f})"
    )

# %%
# Weights against the ridge
# -------------------------
# :class:`kernelweave.weights.ElasticNet` squares the price, and has no cap: kernels get weight in proportion to how far
# their energy is above a threshold. ``theta`` moves from the average (small) to l1 (large). Unlike ``nu`` it has no
# scale of its own: it competes with energies, which grow with C.

prices = np.logspace(-4, 2, 13)
ridged = [
    kw.MKLClassifier(kernels=kernels, weights=kw.weights.ElasticNet(theta)).fit(views[train], y[train])
    for theta in prices
]

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, models, values in ((axes[0], capped, shares), (axes[1], ridged, prices)):
    paths = np.array([model.weights_ for model in models])
    for name, path in zip(models[0].kernel_names_, paths.T, strict=True):
        useful = name.startswith("useful")
        ax.plot(values, path, color="tab:blue" if useful else "tab:gray", label="useful" if useful else "noise")
    ax.set_ylim(bottom=0)
axes[0].plot(shares, np.minimum(1, 1 / (shares * n_kernels)), "k--", label="cap")
axes[0].set(xlabel="nu", ylabel="weight", title="CappedSimplex: l1 at the left, average at the right")
axes[1].set(xlabel="theta", xscale="log", title="ElasticNet: average at the left, l1 at the right")
handles, labels = axes[0].get_legend_handles_labels()
named = dict(zip(labels, handles, strict=True))
axes[0].legend(named.values(), named)
plt.show()

# %%
# Which value?
# ------------
# That is a matter of the data, so it is left to cross-validation, together with ``C``.

search = GridSearchCV(
    kw.MKLClassifier(kernels=kernels),
    {"weights": [kw.weights.CappedSimplex(nu=nu) for nu in (0.1, 0.3, 0.5, 1.0)], "C": [0.3, 1.0, 3.0]},
    cv=3,
).fit(views[train], y[train])
print(search.best_params_, f"accuracy {search.score(views[test], y[test]):.3f}")
