"""
Few labels among many samples
=============================

Labels are dear and samples are cheap. A method that looks at the unlabelled samples, too, can put its boundary where
there are none of them. Input-output kernel learning does so with several kernels at once: it looks for labellings of
all samples, *candidates*, that agree with the known labels and have a large margin, and learns how much each candidate
and each kernel counts.
"""

# %%
# Two clouds, four labels
# -----------------------
# Two of twenty features tell the clouds apart. As in scikit-learn, -1 means that the label is not known.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

import kernelweave as kw

rng = np.random.default_rng(0)
y = np.arange(240) % 2
X = rng.standard_normal((240, 20))
X[:, :2] += np.where(y == 1, 1.2, -1.2)[:, None]
few = np.full(240, -1)
few[:4] = y[:4]
known = few >= 0

model = kw.InputOutputKernelClassifier(max_candidates=15).fit(X, few)
rivals = {
    "SVM on the labelled samples": SVC(C=100.0, gamma=1 / (2 * X.var(axis=0).sum())).fit(X[known], few[known]),
    "label spreading": LabelSpreading(kernel="knn", n_neighbors=10).fit(X, few),
    "input-output kernels": model,
}
for name, rival in rivals.items():
    print(f"{name:<28s} {np.mean(rival.predict(X[~known]) == y[~known]):.3f}")

# %%
# The boundaries in the plane of the two features, all others at their mean; the labelled samples are large dots.

grid = np.stack(np.meshgrid(np.linspace(-4.5, 4.5, 80), np.linspace(-4.5, 4.5, 80)), axis=-1)
plane = np.zeros((80 * 80, 20))
plane[:, :2] = grid.reshape(-1, 2)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for ax, (name, rival) in zip(axes, rivals.items(), strict=True):
    classes = rival.predict(plane).reshape(grid.shape[:2])
    ax.contourf(grid[..., 0], grid[..., 1], classes, levels=[-0.5, 0.5, 1.5], colors=["#cfe0f3", "#f9dcc4"])
    ax.scatter(*X[~known, :2].T, c="0.55", s=6)
    ax.scatter(*X[known, :2].T, c=np.where(few[known] == 1, "tab:orange", "tab:blue"), s=80, edgecolors="k")
    ax.set(title=name, xticks=[], yticks=[])
plt.show()

# %%
# Candidates and their weights
# ----------------------------
# Every kernel has a labelling of its own in every candidate. The first candidate is what a machine that has seen the
# four labels makes of the others; each later one is the labelling that violates the conditions of optimality most, and
# need not be a good one. A soft margin caps the weight of a candidate, so that the solution is an average of several.

weights = model.weights_
share_right = (model.candidates_ == np.where(y == 1, 1, -1)).mean(axis=2)
figure, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
places = np.arange(weights.shape[1])
bottom = np.zeros(len(places))
for name, row, right in zip(model.kernel_names_, weights, share_right.T, strict=True):
    axes[0].bar(places, row, bottom=bottom, label=name)
    axes[1].plot(places, right, "o-", label=name)
    bottom += row
axes[0].set(ylabel="weight")
axes[0].legend()
axes[1].set(ylabel="labels that are right", xlabel="candidate")
plt.show()
print(f"gap of the weights {model.gap_:.1e}, violation of the last candidate {model.violation_:.3f}")

# %%
# Hard or soft, own candidates or shared ones
# -------------------------------------------
# ``c_theta`` is the cap on a candidate's weight, as a multiple of the mean weight: 1 averages all candidates, large
# values are a hard margin. Here the search ends as soon as no labelling exceeds those in use by more than a twentieth.

for settings in ({"margin": "hard"}, {"c_theta": 1.2}, {"c_theta": 3.0}, {"candidates": "shared"}):
    other = kw.InputOutputKernelClassifier(violation=0.05, **settings).fit(X, few)
    kept = np.count_nonzero(np.linalg.norm(other.weights_, axis=0) > 1e-3)
    right = np.mean(other.transduction_[~known] == y[~known])
    print(f"{settings!s:<28s} {right:.3f}, {kept} of {other.weights_.shape[1]} candidates have weight")

# %%
# Digits, five labels a class
# ---------------------------
# Several classes are one problem each, and each needs to know how many samples are its own: by default, as many as
# among the labelled ones. ``transduction_`` has the labels of all training samples, ``predict`` those of new ones.

digits, truth = load_digits(return_X_y=True)
used = np.isin(truth, [1, 4, 7, 8])
digits, truth = digits[used][:400], truth[used][:400]
few = np.full(400, -1)
for label in (1, 4, 7, 8):
    few[np.flatnonzero(truth == label)[:5]] = label
hidden = few < 0
model = kw.InputOutputKernelClassifier(max_candidates=6).fit(digits, few)
machine = SVC(C=100.0, gamma=1e-3).fit(digits[~hidden], few[~hidden])
spread = LabelSpreading(kernel="knn", n_neighbors=7).fit(digits, few)
for name, found in (
    ("SVM on the labelled samples", machine.predict(digits[hidden])),
    ("label spreading", spread.transduction_[hidden]),
    ("input-output kernels", model.transduction_[hidden]),
):
    print(f"{name:<28s} {np.mean(found == truth[hidden]):.3f}")

# %%
# What it is not
# --------------
# A large margin is not the same as being connected. Where classes are long and bent, as in the two moons, methods on a
# graph of neighbours, such as label spreading, are at home, and this one is not better than they are.
