"""
Bags in the plane
=================

Sometimes a label belongs to a bag of instances: a picture is tagged with what is somewhere in it, a molecule is active
if one of its shapes binds. A positive bag holds at least one positive instance, a negative bag none, and nobody says
which instance it is. Here bags are points in a square, and a bag is positive if some of its points lie in a disc.
"""

# %%
# Bags without labels of points
# -----------------------------
# A tenth of the points of a positive bag, and at least one, lie in the disc. The classifier sees the colours of the
# left picture only; the right one is what it should find.

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave.ambiguity import Bags
from kernelweave.kernels import Gaussian

bags, y, inside = kw.datasets.make_bags(n_bags=40, positive_fraction=0.1, random_state=4)
together = Bags(bags)
print(together)

figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for ax, labels, title in ((axes[0], y[together.bag_of], "label of the bag"), (axes[1], inside, "what is hidden")):
    for side, colour in ((0, "tab:blue"), (1, "tab:red")):
        points = together.instances[labels == side]
        ax.scatter(points[:, 0], points[:, 1], s=12, color=colour)
    ax.add_patch(plt.Circle((0, 0), 1.5, fill=False, linestyle=":"))
    ax.set(title=title, aspect="equal")
plt.show()

# %%
# Four ways to find what is hidden
# --------------------------------
# Alternation begins with all instances of positive bags positive, and stays near that. Annealing begins undecided,
# cools down, and ends in a far better optimum of the very same problem, one with few positives. ALP-SVM is told which
# share of a positive bag should be positive. The witness machine asks for one instance a bag and ignores the others.

ways = {
    "alternation (mi-SVM)": {"scenario": "instance", "method": "alternation"},
    "annealing (AL-SVM)": {"scenario": "instance", "method": "annealing"},
    "balanced (ALP-SVM)": {"scenario": "instance", "method": "alp", "positive_fraction": 0.2, "D": 100.0},
    "witnesses (AW-SVM)": {"scenario": "witness", "method": "annealing"},
}
new_bags, new_y, new_inside = kw.datasets.make_bags(n_bags=300, positive_fraction=0.1, random_state=5)
fitted = {}
print(f"{'':22s} objective  bag error  instance error  positive  solves")
for name, settings in ways.items():
    clf = kw.MIClassifier(**settings, kernels=Gaussian(gamma=0.5), C=100.0).fit(bags, y)
    wrong = np.mean(clf.predict_instances(new_bags) != new_inside)
    print(f"{name:22s} {clf.objective_:9.1f}  {1 - clf.score(new_bags, new_y):9.3f}  {wrong:14.3f}", end="")
    print(f"  {clf.positive_fraction_:8.2f}  {clf.n_svm_solves_:6d}")
    fitted[name] = clf

# %%
# Where the instances are positive
# --------------------------------
# The colour is the score of an instance at this place, the line where it is zero. Rings are the instances that each
# method took to be positive. The score of a bag is that of its best instance.

grid = np.linspace(-3, 3, 80)
places = np.stack(np.meshgrid(grid, grid), axis=2).reshape(-1, 2)
figure, axes = plt.subplots(2, 2, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, (name, clf) in zip(axes.flat, fitted.items(), strict=True):
    scores = clf.instance_scores(places).reshape(80, 80)
    ax.contourf(grid, grid, scores, levels=np.linspace(-3, 3, 13), cmap="RdBu_r", extend="both", alpha=0.7)
    ax.contour(grid, grid, scores, levels=[0], colors="black")
    ax.add_patch(plt.Circle((0, 0), 1.5, fill=False, linestyle=":"))
    positive = y[together.bag_of] == 1
    ax.scatter(*together.instances[~positive].T, s=6, color="tab:blue")
    ax.scatter(*together.instances[positive].T, s=6, color="tab:red")
    ax.scatter(*together.instances[clf.instance_labels_ == 1].T, s=40, facecolors="none", edgecolors="black")
    ax.set(title=name, aspect="equal")
plt.show()

# %%
# Cooling down
# ------------
# At high temperatures every probability is one half. They are decided within few temperatures, and little happens
# afterwards.

path = fitted["annealing (AL-SVM)"].temperature_path_
path = path[path["temperature"] > 0]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogx(path["temperature"], path["entropy"], marker="o")
ax.invert_xaxis()
ax.set(xlabel="temperature", ylabel="entropy of the labels, nats")
plt.show()
