"""Whole training steps of a plain net in several precisions, against the clock.

Only records made on a GPU are judged: what a CPU does in float16 says nothing of one.
"""
