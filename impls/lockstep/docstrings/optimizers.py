"""Optimizers of TensorFlow 1 and NovoGrad: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

LAST = """\
    use_locking: without effect.
    name: the name that ``get_name`` returns.
    strict: compute in the {variable}'s dtype, as the original does, also in half
        precision.

Raises:
    OutOfRangeError: a ValueError; an argument is out of its range.
"""

TEXTS: dict[str, str] = {
    "AdagradOptimizer": f"""\
Adagrad: the rate of an element falls with the squares of its gradients.

acc += g^2; w -= lr g / sqrt(acc), without an epsilon.

Args:
    learning_rate: lr >= 0.
    initial_accumulator_value: of acc, > 0.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.AdagradOptimizer``; Duchi et al. 2011.
""",
    "AdamOptimizer": f"""\
Adam in its "epsilon hat" form: epsilon is added to the root of the uncorrected v.

m += (1 - b1) (g - m); v += (1 - b2) (g^2 - v);
w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

Args:
    learning_rate: lr >= 0.
    beta1: decay of m, b1 in [0, 1).
    beta2: decay of v, b2 in [0, 1).
    epsilon: eps >= 0.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.AdamOptimizer``; Kingma and Ba 2015.
""",
    "AdamWOptimizer": f"""\
Adam after a decay of the weights that is not multiplied by the rate.

w -= weight_decay w, then as :class:`AdamOptimizer`.

Args:
    weight_decay: the fraction of a weight that each update subtracts, >= 0.
    learning_rate: lr >= 0.
    beta1: decay of m, in [0, 1).
    beta2: decay of v, in [0, 1).
    epsilon: eps >= 0, added to the root of the uncorrected v.
{LAST}
Origin: TensorFlow 1.15, ``tf.contrib.opt.AdamWOptimizer``; Loshchilov and Hutter
2019, whose decay is multiplied by the rate.
""",
    "FtrlOptimizer": f"""\
FTRL-proximal with l1, l2 and l2 shrinkage.

G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p) / lr w; accum = n;
w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.
At rate 0 nothing changes.

Args:
    learning_rate: lr >= 0.
    learning_rate_power: p <= 0.
    initial_accumulator_value: of accum, >= 0.
    l1_regularization_strength: l1 >= 0.
    l2_regularization_strength: l2 >= 0.
    accum_name, linear_name: without effect.
    l2_shrinkage_regularization_strength: s >= 0.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.FtrlOptimizer``; McMahan et al. 2013.
""",
    "GradientDescentOptimizer": f"""\
Gradient descent.

w -= lr g. If a sparse gradient lists a row several times, it is updated each time.

Args:
    learning_rate: lr >= 0.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.GradientDescentOptimizer``.
""",
    "MomentumOptimizer": f"""\
Gradient descent with momentum.

a = mu a + g; w -= lr a. Nesterov: w -= lr g + lr mu a, with a already new.

Args:
    learning_rate: lr >= 0.
    momentum: mu, in [0, 1].
    use_nesterov: look ahead, as Nesterov did.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.MomentumOptimizer``; Sutskever et al. 2013.
""",
    "NovoGrad": """\
Momentum of gradients, each divided by a running norm of its tensor.

v = b2 v + (1 - b2) |g|^2, at first |g|^2; g' = g / sqrt(v + eps) + wd w;
a = b1 a + g', or b1 a + (1 - b1) g' averaged; w -= lr a.

There is one v per tensor, so half of Adam's state. Sparse gradients are made
dense, because momentum decays on every row. A v that is 0 or not finite is replaced by
the next |g|^2.

Args:
    learning_rate: lr >= 0.
    beta1: b1, decay of a, in [0, 1).
    beta2: b2, decay of v, in [0, 1).
    epsilon: eps >= 0, inside of the root.
    weight_decay: wd >= 0, multiplied by the rate and subject to momentum.
    grad_averaging: multiply g', its decay included, by 1 - b1.
    use_locking: without effect.
    name: the name that ``get_name`` returns.
    strict: as in OpenSeq2Seq: v is |g|^2 of the step, whatever b2 is;
        ``apply_gradients`` needs a list, writes normalized gradients into it and
        refuses absent ones; {variable}s other than float32 are refused.

Raises:
    OutOfRangeError: a ValueError; an argument is out of its range.

Origin: OpenSeq2Seq, ``open_seq2seq.optimizers.novograd.NovoGrad``; Ginsburg et al.,
2019 (arXiv 1905.11286).
""",
    "RMSPropOptimizer": f"""\
RMSProp whose mean square starts at one, with the rate inside of the momentum.

rms += (1 - d) (g^2 - rms); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.
Centered: mg += (1 - d) (g - mg), and the root is that of rms - mg^2 + eps.

Args:
    learning_rate: lr >= 0.
    decay: d, in [0, 1].
    momentum: mu, in [0, 1].
    epsilon: eps >= 0, inside of the root.
    centered: subtract the square of the mean gradient.
{LAST}
Origin: TensorFlow 1.15, ``tf.train.RMSPropOptimizer``; Tieleman and Hinton 2012.
""",
}
"""Name of a class or function -> its shared docstring text."""
