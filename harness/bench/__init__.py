"""Benchmarks: what a wrapper costs against its peers, measured with pytest-benchmark.

``NAME.toml`` says what is measured and which goals there are; ``declare`` reads it.
``command`` starts measuring processes (``process``), in which ``bench_setups`` times
the setups of all benchmarks of a backend, and turns their times into records. ``judge``
makes effects and verdicts of these; ``compare``, ``figures`` and ``report`` show them.
"""
