"""
Finding the tags that are missing
=================================

People who tag pictures stop early: what they write is there, but much that is there they do not write. A classifier
that takes every tag left out as a "no" learns from wrong examples. A ranker only learns that the given tags belong
above the others, and afterwards tells which of the others look like omissions.
"""

# %%
# A collection with half of its tags
# ----------------------------------
# Twelve tags; each shows in one of two views only, and a third view is noise. We know all tags, and hide 40 % of those
# of the training samples. Every sample keeps at least one.

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave import evaluation

views, complete = kw.datasets.make_tagged_views(n_samples=900, n_labels=12, random_state=0)
train, test = np.arange(600), np.arange(600, 900)
hidden = evaluation.remove_labels(complete[train], fractions=(0.4,), random_state=0)[0]
print(f"{hidden.removed.sum()} of {complete[train].sum()} tags hidden ({hidden.realised:.0%})")

# %%
# Rank the tags of each sample
# ----------------------------
# Three Gaussian kernels a view; the ranker learns their weights together with the ranking and gives its certificate.

ranker = kw.LabelRanker(loss="pairwise", random_state=0).fit(views[train], hidden.Y)
print(f"duality gap {ranker.gap_:.1e}")
print(evaluation.weight_bars(ranker))

# %%
# New samples: the ranking against one classifier a tag
# ------------------------------------------------------
# Both learn from the same incomplete tags. The share of (given, not given) pairs in the right order is the area under
# the ROC curve of each sample; the test samples have all their tags.

one_by_one = kw.MKLClassifier(sharing="sum", C=1.0).fit(views[train], hidden.Y)
for name, model in (("ranker", ranker), ("one classifier a tag", one_by_one)):
    scores = model.decision_function(views[test])
    print(f"{name:22} image AUC {evaluation.auc(complete[test], scores):.3f}")

# %%
# The tags that are missing
# -------------------------
# ``missing_labels`` goes through the tags that were not given and returns those that score above their threshold, best
# first. ``None`` stands for the samples of the fit: each is then scored by a ranker that has not seen it, because the
# model itself has learned that they lack these tags. Since we hid them ourselves, we can count the right suggestions.

found = ranker.missing_labels(None, hidden.Y)
right = hidden.removed[found["row"], found["label"]]
print("row  tag  score   was hidden")
for suggestion, hit in list(zip(found, right, strict=True))[:8]:
    print(f"{suggestion['row']:3}  {suggestion['label']:3}  {suggestion['score']:5.2f}   {'yes' if hit else 'no'}")

by_chance = hidden.removed.sum() / (hidden.Y == 0).sum()
precision = np.cumsum(right) / np.arange(1, len(right) + 1)
recall = np.cumsum(right) / hidden.removed.sum()
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(recall, precision, label="suggestions of the ranker")
ax.axhline(by_chance, color="grey", linestyle=":", label="suggestions at random")
ax.set(xlabel="share of the hidden tags found", ylabel="share of suggestions that are right", ylim=(0, 1.02))
ax.legend()
plt.show()

# %%
# Tags that nobody judged
# -----------------------
# Sometimes it is known which tags nobody looked for. Then say so: NaN is neither "yes" nor "no", and takes no part in
# the fit, the thresholds, or any measure. Here the hidden tags are marked instead of being left as "no", and so are as
# many tags that really are absent.

judged = hidden.Y.astype(float)
judged[hidden.removed] = np.nan
absent = np.flatnonzero((complete[train] == 0).ravel())
judged.ravel()[np.random.default_rng(0).choice(absent, size=int(hidden.removed.sum()), replace=False)] = np.nan
knowing = kw.LabelRanker(loss="pairwise", random_state=0).fit(views[train], judged)
scores = knowing.decision_function(views[test])
print(f"image AUC with unjudged tags marked: {evaluation.auc(complete[test], scores):.3f}")
candidates = np.isnan(judged)
found_again = evaluation.auc(np.where(candidates, complete[train], np.nan), knowing.decision_function(views[train]))
print(f"unjudged tags of a training sample in the right order: {found_again:.3f}")
