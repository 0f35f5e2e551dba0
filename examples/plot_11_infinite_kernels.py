"""
Kernels that are found, not listed
==================================

A chessboard of two columns and four rows, hidden among eighteen features of pure noise. No single feature tells the
colours apart, and a distance of all features is mostly noise. What is needed is a Gaussian kernel that weighs the
features, and there are too many of those to list: here it is found.
"""

# %%
# The board
# ---------

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave.kernels import Gaussian, GaussianFamily

X, y = kw.datasets.make_chessboard(n_samples=1300, n_noise=18, random_state=0)
X, y, X_test, y_test = X[:300], y[:300], X[300:], y[300:]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.scatter(X[:, 0], X[:, 1], c=y, cmap="coolwarm", s=14)
left.set(xlabel="feature 0", ylabel="feature 1", title="the two features that matter")
right.scatter(X[:, 2], X[:, 3], c=y, cmap="coolwarm", s=14)
right.set(xlabel="feature 2", ylabel="feature 3", title="two of the others")
plt.show()

# %%
# A list of kernels
# -----------------
# Thirteen bandwidths, on all features together and on each feature alone: 273 kernels, none of which can say what a
# chessboard is.

rates = 1 / np.array([1, 2, 3, 5, 10, 20, 30, 40, 50, 75, 100, 125, 150])
columns = {"all": slice(0, 20)} | {f"feature{d}": [d] for d in range(20)}
bank = kw.KernelBank([Gaussian(gamma=rate) for rate in rates], columns=columns)
listed = kw.MKLClassifier(bank, weights="l1").fit(X, y)
error = 1 - listed.score(X_test, y_test)
print(f"{len(listed.weights_)} kernels: objective {listed.objective_:.1f}, test error {error:.3f}")

# %%
# A family of kernels
# -------------------
# ``GaussianFamily("product")`` has one rate for every feature, each from 0 to 30. The fit adds the kernels that violate
# the optimality conditions most, and removes those that lose all weight.

found = kw.InfiniteKernelClassifier(GaussianFamily("product"), tol=1e-2, random_state=0).fit(X, y)
print(
    f"{len(found.kernels_)} kernels: objective {found.objective_:.1f}, test error {1 - found.score(X_test, y_test):.3f}"
)
for j in np.argsort(-found.weights_)[:4]:
    print(f"weight {found.weights_[j]:.3f}  {found.kernel_names_[j]}")

# %%
# Nearly all weight is on kernels that look at the first two features only.

by_weight = np.argsort(-found.weights_)
shares = np.array([found.kernels_[j].rates for j in by_weight])
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", width_ratios=(1, 2))
axes[0].barh(np.arange(len(by_weight)), found.weights_[by_weight])
axes[0].invert_yaxis()
axes[0].set(xlabel="weight", ylabel="kernel", title="weights")
image = axes[1].imshow(np.sqrt(shares), aspect="auto", cmap="Greys")
axes[1].set(xlabel="feature", title="root of the rate of every feature")
figure.colorbar(image)
plt.show()

# %%
# How it got there
# ----------------
# One row a round. The lower bound is one over all kernels that were found. With a rate for every feature, the search
# climbs from many starting points and may miss a kernel, so this fit is not certified.

history = found.history_
print("round  kernels     upper     lower   most energy found / needed")
for row in history:
    print(
        f"{row['iteration']:5d} {row['active']:8d} {row['upper']:9.2f} {row['lower']:9.2f} "
        f"{row['found']:10.2f} / {row['level']:.2f}"
    )
print(f"certified: {found.certified_}, gap over the kernels found: {found.gap_:.1e}")

# %%
# With one rate only, branch and bound looks at every kernel there is: the gap is then a proof that no rate between 0
# and 30, in use or not, would improve the objective by more. It also proves that one rate cannot solve this problem.

single = kw.InfiniteKernelClassifier(GaussianFamily("single")).fit(X, y)
worst = single.most_violated_[0]
print(f"certified: {single.certified_}, gap {single.gap_:.1e}, objective {single.objective_:.1f}")
print(f"most energy found {worst.energy:.3f}, in no kernel more than {worst.bound:.3f}, in use {worst.level:.3f}")
print(f"test error {1 - single.score(X_test, y_test):.3f}")
