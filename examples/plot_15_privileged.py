"""
Seen clearly once: distances with privileged information
========================================================

A camera with a depth sensor took the training pictures; afterwards there is only a plain camera. What the sensor saw is
*privileged information*: known in training, never again. ITML+ uses it to judge the pairs that a distance is learned
from, and the distance itself needs only what everybody has.
"""

# %%
# The same people in a noisy and in a clean view
# ----------------------------------------------
# Sixty people, ten shots of each. The noisy view X hides the person behind noise and changing light, the clean view Z
# shows them. The first twenty people are for training, twenty to choose parameters, twenty to test: a distance is to
# work for people nobody has seen before. And, as happens, 30 % of the training shots bear the name of somebody else.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import kernelweave as kw
from kernelweave.evaluation import (
    cumulative_match,
    one_gallery_split,
    plot_cumulative_match,
    plot_distances,
    privileged_ratio_curve,
    verification,
)
from kernelweave.metric import EuclideanMetric

X, Z, person = kw.datasets.make_privileged(n_identities=60, n_shots=10, random_state=0)
train, validation, test = person < 20, (person >= 20) & (person < 40), person >= 40


def with_wrong_names(names, share, seed=0):
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(names)) < share
    names = names.copy()
    names[wrong] = rng.permutation(names[wrong])
    return names


pairs = kw.PairSet.from_classes(with_wrong_names(person[train], 0.3), random_state=0)
pairs

# %%
# Three distances
# ---------------
# Nothing learned; ITML, which believes every pair; ITML+, which has pairs judged by Z. Parameters are those that verify
# best on the second group of people. ITML+ is stopped after ten sweeps, as published: pairs with wrong names contradict
# each other, so that no distance satisfies all of them, and a warning says so.


def verify(model, group):
    new = kw.PairSet.from_classes(person[group], random_state=1)
    return verification(model.score_pairs(X[group][new.first], X[group][new.second]), new.similar)


def best(models, pairs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [model.fit_pairs(pairs, X[train], Z[train]) for model in models]
    return max(fitted, key=lambda model: verify(model, validation).auc)


grid = [0.01, 0.1, 1.0, 10.0]
plain = [kw.ITML(gamma=gamma, random_state=0) for gamma in grid]
plus = [kw.ITMLPlus(gamma=gamma, lam=lam, stopping="published", random_state=0) for gamma in grid for lam in (0.1, 1.0)]
models = {
    "Euclidean": EuclideanMetric().fit(X[train]),
    "ITML": best(plain, pairs),
    "ITML+": best(plus, pairs),
}
for name, model in models.items():
    result = verify(model, test)
    print(f"{name:10} average precision {result.average_precision:.3f}, area under the curve {result.auc:.3f}")

# %%
# Distances between shots of new people. What overlaps cannot be told apart.

new = kw.PairSet.from_classes(person[test], random_state=1)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    plot_distances(model.pair_distance(X[test][new.first], X[test][new.second]), new.similar, ax=ax)
    ax.set(title=name)
plt.show()

# %%
# Who is it?
# ----------
# One shot of each of the new people is the gallery; all other shots are looked up in it.

gallery, probes = one_gallery_split(person[test], random_state=0)
curves = {}
for name, model in models.items():
    embedded = model.transform(X[test])
    distances = np.linalg.norm(embedded[probes][:, None] - embedded[gallery][None], axis=2)
    curves[name] = cumulative_match(distances, person[test][gallery], person[test][probes])
    print(f"{name:10} right at once {curves[name][0]:.3f}")
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
plot_cumulative_match(curves, ax=ax)
plt.show()

# %%
# The more is wrong, the more a clean view is worth
# -------------------------------------------------
# With right names, ITML needs no help: the clean view knows little that the names do not say. With wrong ones it falls,
# and ITML+ hardly does.

shares = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
areas = {"ITML": [], "ITML+": []}
for share in shares:
    noisy = kw.PairSet.from_classes(with_wrong_names(person[train], share), random_state=0)
    areas["ITML"].append(verify(best(plain, noisy), test).auc)
    areas["ITML+"].append(verify(best(plus, noisy), test).auc)

figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, values in areas.items():
    ax.plot(shares, values, "o-", label=name)
ax.axhline(verify(models["Euclidean"], test).auc, color="grey", linestyle=":", label="Euclidean")
ax.set(xlabel="share of wrong names", ylabel="area under the curve, new people")
ax.legend()
plt.show()

# %%
# Often only some of the pairs were seen clearly. :class:`kernelweave.PartialITMLPlus` takes what there is: without any
# it is ITML, with all it is ITML+. Here the first quarter is worth most of it.

partial = kw.PartialITMLPlus(**{name: getattr(models["ITML+"], name) for name in ("gamma", "lam", "stopping")})
known = [0.0, 0.25, 0.5, 0.75, 1.0]
in_random_order = pairs.subset(np.random.default_rng(0).permutation(len(pairs)))
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    curve = privileged_ratio_curve(
        partial.set_params(random_state=0),
        in_random_order,
        X[train],
        Z[train],
        lambda model: verify(model, test).auc,
        shares=known,
    )
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.plot(known, curve, "o-")
ax.set(xlabel="share of pairs with privileged features", ylabel="area under the curve, new people")
plt.show()

# %%
# Is there a solution at all?
# ---------------------------
# The multipliers of pairs that contradict each other grow, and usually grow into a proof of it. A little slack for
# every pair gives the problem a solution again, and the fit a duality gap that bounds how far it is from the best.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    hard = kw.ITMLPlus(random_state=0).fit_pairs(pairs, X[train], Z[train])
print(f"feasible: {hard.feasible_}, worst violation {hard.violation_:.2f}, {hard.n_sweeps_} sweeps")
print(caught[0].message)
soft = kw.ITMLPlus(slack=0.1, lam=10.0, random_state=0).fit_pairs(pairs, X[train], Z[train])
print(f"with slack: gap {soft.gap_:.1e} after {soft.n_sweeps_} sweeps, area {verify(soft, test).auc:.3f}")
