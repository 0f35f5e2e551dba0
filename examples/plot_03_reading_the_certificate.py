"""
Reading the certificate
=======================

Every fit carries two numbers that enclose the best possible objective: an upper bound, which is the objective
reached, and a lower bound, which holds for *all* weights and all models on these kernels. Their relative
difference is the duality gap, and it is both the stopping rule and the certificate of a fit.
"""

# %%
# A fit to a small gap
# --------------------

import matplotlib.pyplot as plt

import kernelweave as kw

views, y = kw.datasets.make_views(n_samples=300, n_useful=3, n_redundant=3, n_noise=6, random_state=0)
model = kw.MKLClassifier(weights="l1", solver="level", tol=1e-6).fit(views, y)

print(f"objective {model.objective_:.6f}, relative gap {model.gap_:.1e}, converged: {model.converged_}")
print(f"{model.n_iter_} iterations, {model.n_svm_solves_} solves of the support vector machine")

# %%
# The history
# -----------
# One row an iteration: the bounds so far, how many kernels are active, and where the time went.

history = model.history_
print("iteration      upper      lower        gap  active")
for row in history[:: max(1, len(history) // 10)]:
    print(f"{row['iteration']:9d} {row['upper']:10.4f} {row['lower']:10.4f} {row['gap']:10.1e} {row['active']:7d}")

# %%
# :func:`kernelweave.evaluation.plot_history` draws the gap, and how far each bound still is from the best value
# of the other. Often one of the two is nearly right long before the other proves it.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
kw.evaluation.plot_history(model, x="iteration", ax=left)
left.set_title("bounds on a logarithmic axis")
right.plot(history["iteration"], history["upper"], "C3.-", label="upper bound")
right.plot(history["iteration"], history["lower"], "C0.-", label="lower bound")
right.set(xlabel="iteration", ylabel="objective", title="the same bounds as they are")
right.legend()
plt.show()

# %%
# What a gap means for you
# ------------------------
# The default tolerance is 1e-3. A rougher fit is quicker, and its predictions may already be the same; the gap
# tells how much there was left to gain in the objective.

print("  tol     gap reached   predictions that differ from the precise fit")
for tol in (1e-1, 1e-2, 1e-3, 1e-4):
    rough = kw.MKLClassifier(weights="l1", solver="level", tol=tol).fit(views, y)
    differing = (rough.predict(views) != model.predict(views)).mean()
    print(f"{tol:7.0e}   {rough.gap_:8.1e}     {differing:.1%}")
