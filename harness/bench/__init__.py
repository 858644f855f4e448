"""Benchmarks: what a wrapper costs against its peers, measured with pytest-benchmark.

``NAME.toml`` says what is measured and which ratios are the goals; ``bench_setups``
runs the setups of a task in one process a backend; ``command`` turns what came out into
records; ``compare`` and ``figures`` read these records only.
"""
