"""Benchmarks: the overhead of a wrapper against its peers, with pytest-benchmark.

``NAME.toml`` declares what is measured, and what we aim at; ``declare`` reads it.
``measure`` starts measuring processes. Each of them runs ``bench_setups``, which times
the setups of a backend and writes the records. ``compare`` computes effects and
verdicts; ``figures`` and ``report`` show them. ``commits`` times two commits.
"""
