"""The benchmarks of steps: a file a backend, in which each benchmark is a function.

``NAME(seed, device, **setup)`` returns the builders of its variants, where ``NAME`` is
the ``task`` in ``harness/bench/*.toml``. No network is run. Gradients are drawn once
and stay constant, because only the cost of the optimizer's step is measured.
"""
