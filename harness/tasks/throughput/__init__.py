"""Timings of whole training steps of a plain net in several precisions.

Only records of GPUs are judged, because float16 on a CPU is not comparable.
"""
