"""Benchmarks: the overhead of a wrapper against its peers, with pytest-benchmark.

``NAME.toml`` declares what is measured, and what we aim at; ``declare`` reads it.
``command`` starts measuring processes (``process``). In them ``bench_setups`` times the
setups of all benchmarks of a backend. ``command`` keeps their files, the records.
``compare`` computes effects and verdicts; ``figures`` and ``report`` show them.
"""
