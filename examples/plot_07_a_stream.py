"""
A stream
========

When samples keep arriving, or there are too many for a kernel matrix, :class:`kernelweave.OnlineMKLClassifier`
learns from them batch by batch and keeps only the samples it needs.
"""

# %%
# Test, then learn
# ----------------
# Every batch is first predicted and then learned from, so that each sample is a test sample once. A full fit on
# the first samples is there to compare with.

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=2000, n_useful=2, n_redundant=0, n_noise=3, separation=3.0, random_state=0)
batches = np.array_split(np.arange(len(y)), 40)
classes = np.unique(y)

progress = {}
for method in ("hedge", "om2"):
    model = kw.OnlineMKLClassifier(kernels=kw.kernels.Gaussian(), method=method)
    model.partial_fit(views[batches[0]], y[batches[0]], classes=classes)
    right = []
    for batch in batches[1:]:
        right.append((model.predict(views[batch]) == y[batch]).mean())
        model.partial_fit(views[batch], y[batch])
    progress[method] = np.cumsum(right) / np.arange(1, len(right) + 1)
    print(f"{method:6} accuracy over the stream: {progress[method][-1]:.3f}")

first = np.concatenate(batches[:10])
rest = np.concatenate(batches[10:])
full = kw.MKLClassifier(kernels=kw.kernels.Gaussian()).fit(views[first], y[first])
reference = full.score(views[rest], y[rest])
print(f"MKLClassifier on the first {len(first)} samples: {reference:.3f}")

# %%

figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for method, accuracy in progress.items():
    ax.plot(50 * np.arange(2, len(accuracy) + 2), accuracy, label=method)
ax.axhline(reference, color="k", linestyle=":", label="full fit on 500 samples")
ax.set(xlabel="samples seen", ylabel="accuracy so far")
ax.legend()
plt.show()
