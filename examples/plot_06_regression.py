"""
Regression
==========

:class:`kernelweave.MKLRegressor` predicts numbers: the same kernels, weight sets and solvers, with squared loss.
"""

# %%
# A target with two sources
# -------------------------
# The target is the sum of a smooth function of each useful view and a little noise.

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

import kernelweave as kw

views, y = kw.datasets.make_regression_views(
    n_samples=500, n_useful=2, n_redundant=0, n_noise=4, n_features=3, random_state=0
)
train, test = train_test_split(range(len(y)), random_state=0)

# %%
# Learned weights against equal weights
# -------------------------------------
# The score is R², the share of the variance that is explained. A kernel of a noise view makes every sample
# similar to the wrong ones, so that equal weights pay for each of them.

models = {}
for weights in ("average", "l1", "l2"):
    models[weights] = kw.MKLRegressor(kernels=kw.kernels.Gaussian(), weights=weights, C=10.0).fit(
        views[train], y[train]
    )
    print(f"{weights:8} R2 on test samples: {models[weights].score(views[test], y[test]):.3f}")

# %%
# Several bandwidths a view
# -------------------------
# A bank can hold several kernels of each view (without ``kernels=`` you get three like these). Their widths are in
# units of the mean squared distance between training samples.

bank = kw.KernelBank({name: [kw.kernels.Gaussian(m) for m in (0.25, 1.0, 4.0)] for name in views.names})
model = kw.MKLRegressor(kernels=bank, weights="l1", C=10.0).fit(views[train], y[train])
print(f"R2 on test samples: {model.score(views[test], y[test]):.3f}")
print(kw.evaluation.weight_bars(model))

# %%

figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.plot(y[test], model.predict(views[test]), ".")
    ax.axline((0, 0), slope=1, color="k", linestyle=":")
    ax.set(title=name, xlabel="true value")
axes[0].set_ylabel("predicted value")
plt.show()
