"""
Sparse or dense: l1, l2, average
================================

The weight set decides how the weights may be distributed. On the simplex (``"l1"``) a kernel has to earn its
place, and most weights end at zero. On the l2 ball every kernel keeps a say. ``"average"`` does not learn at
all. Which is better depends on the data, so we try two kinds: a few good views among noise, and many weak views
of which each knows a little.
"""

# %%
# Two kinds of data
# -----------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, train_test_split

import kernelweave as kw

data = {
    "2 good views, 14 of noise": kw.datasets.make_views(
        n_samples=500, n_useful=2, n_redundant=0, n_noise=14, separation=2.0, random_state=0
    ),
    "16 weak views": kw.datasets.make_views(
        n_samples=500, n_useful=16, n_redundant=0, n_noise=0, separation=0.8, random_state=0
    ),
}

# %%
# Three ways to weight
# --------------------
# ``C`` does not mean the same in each weight set: equal weights on the simplex are 1/s, on the l2 ball they are
# larger. So ``C`` is tuned for each by cross-validation on the training samples.

fitted: dict[tuple[str, str], kw.MKLClassifier] = {}
for kind, (views, y) in data.items():
    train, test = train_test_split(np.arange(len(y)), test_size=0.4, random_state=0)
    for weights in ("average", "l1", "l2"):
        search = GridSearchCV(
            kw.MKLClassifier(kernels=kw.kernels.Gaussian(), weights=weights), {"C": [0.1, 1.0, 10.0]}, cv=3
        )
        model = search.fit(views[train], y[train]).best_estimator_
        fitted[kind, weights] = model
        active = np.count_nonzero(model.weights_)
        score = model.score(views[test], y[test])
        print(f"{kind:26} {weights:8} accuracy {score:.3f}   active kernels {active:2}   C = {model.C:g}")

# %%
# The weights
# -----------
# Among much noise, l1 keeps few kernels and l2 keeps all, with small weights for the noise. Sparse is not the same as
# few, though: where every view knows something of its own, l1 keeps many.

figure, axes = plt.subplots(2, 3, figsize=(10, 7), sharex="row", layout="constrained")
for ax, ((kind, weights), model) in zip(axes.flat, fitted.items(), strict=True):
    kw.evaluation.plot_weights(model, ax=ax)
    ax.set_title(f"{kind}: {weights}", fontsize="medium")
    ax.tick_params(axis="y", labelsize="small")
plt.show()

# %%
# Between the two: the lp ball
# ----------------------------
# ``"l1.33"``, ``"l4"`` or any other p (or :class:`kernelweave.weights.LpBall`) lies between, or beyond. The
# ratio of the smallest to the largest weight grows from 0 (sparse) towards 1 (equal weights).

views, y = data["2 good views, 14 of noise"]
for weights in ("l1", "l1.33", "l2", "l4", "l16"):
    model = kw.MKLClassifier(kernels=kw.kernels.Gaussian(), weights=weights).fit(views, y)
    print(f"{weights:6} smallest weight / largest weight = {model.weights_.min() / model.weights_.max():.3f}")
