"""
One view is not enough
======================

The same samples are often described in several ways. Here two descriptions carry *different* parts of the
information about the class, and one is noise. We train on each view alone, and then on all of them with learned
weights.
"""

# %%
# Generated views
# ---------------
# :func:`kernelweave.datasets.make_views` makes views of a known kind. Given the class, the useful views are
# independent of each other: what one cannot tell, the other often can.

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=600, n_useful=2, n_redundant=0, n_noise=1, random_state=0)
train, test = train_test_split(range(len(y)), random_state=0)
views

# %%
# One at a time, then together
# ----------------------------
# With a single view and a single kernel this is an ordinary support vector machine. ``kernels=Gaussian()`` means one
# Gaussian kernel for each view, with a width that follows from the distances between training samples.

accuracy = {}
for name in views.names:
    alone = kw.Views({name: views[name]})
    accuracy[name] = (
        kw.MKLClassifier(kernels=kw.kernels.Gaussian()).fit(alone[train], y[train]).score(alone[test], y[test])
    )

model = kw.MKLClassifier(kernels=kw.kernels.Gaussian(), weights="l1").fit(views[train], y[train])
accuracy["all, l1 weights"] = model.score(views[test], y[test])

for name, value in accuracy.items():
    print(f"{name:16} {value:.3f}")

# %%
# Which views mattered
# --------------------
# The weights say how much each kernel counts. They were learned together with the classifier, from the training
# samples alone; nobody said which view is noise.

print(kw.evaluation.weight_bars(model))

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.bar(list(accuracy), list(accuracy.values()), color=["C0", "C0", "0.6", "C2"])
left.axhline(0.5, color="k", linestyle=":", label="guessing")
left.set(ylim=(0.4, 1.0), ylabel="accuracy on test samples")
left.tick_params(axis="x", rotation=20)
left.legend()
kw.evaluation.plot_weights(model, ax=right)
plt.show()
