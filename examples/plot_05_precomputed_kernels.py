"""
Precomputed kernels and cross-validation
========================================

Kernels may come from elsewhere: from graphs, strings, molecules, or a program of your own. A
:class:`kernelweave.KernelStack` holds them and can be indexed by samples, so that everything in scikit-learn
that splits data works with it.
"""

# %%
# A stack of kernels
# ------------------
# One symmetric matrix a kernel, between all samples, in an array of shape (n_kernels, n, n). Here three kernels of
# scikit-learn on each of six views.

import numpy as np
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=240, n_useful=2, n_redundant=0, n_noise=4, random_state=0)
functions = {"linear": linear_kernel, "gaussian": rbf_kernel, "laplacian": laplacian_kernel}
K = np.stack([function(views[view]) for view in views.names for function in functions.values()])
names = [f"{view}/{kernel}" for view in views.names for kernel in functions]

# %%
# Kernels of very different scale do not compete fairly: a large one needs only a small weight. Scaling each to
# the same mean diagonal entry puts them on one footing.

K /= np.trace(K, axis1=1, axis2=2)[:, None, None] / K.shape[1]
stack = kw.KernelStack(K, names=names)
stack

# %%
# Cross-validation
# ----------------
# Indexing the stack with samples chooses them, and a model knows which entries lie between its training samples
# and the new ones.

model = kw.MKLClassifier(kernels="precomputed", weights="l1")
scores = cross_val_score(model, stack, y, cv=5)
print(f"accuracy {scores.mean():.3f} +- {scores.std():.3f}")

# %%
# Choosing weights and C
# ----------------------
# The weight set is a parameter like any other.

search = GridSearchCV(model, {"weights": ["average", "l1", "l2"], "C": [0.03, 0.3, 3.0]}, cv=3).fit(stack, y)
for setting, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{setting['weights']:8} C = {setting['C']:<5} accuracy {score:.3f}")

# %%
# Which kernels the sparse weights choose, whether or not they won:

print(kw.evaluation.weight_bars(model.set_params(C=0.3).fit(stack, y)))

# %%
# New samples
# -----------
# For samples that were not there when the stack was made, give ``predict`` the kernels between them and the training
# samples, an array of shape (n_kernels, n_new, n_train).

train, new = np.arange(180), np.arange(180, 240)
model.fit(stack[train], y[train])
cross = K[:, new][:, :, train]
print("shape of the cross kernels:", cross.shape)
print("same predictions:", np.array_equal(model.predict(cross), model.predict(stack[new])))
