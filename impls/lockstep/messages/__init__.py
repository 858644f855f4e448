"""Messages of all backends: names, defaults, admissible values and error sentences.

Nothing here computes with tensors or imports a framework. The backends share these
parameter tables and sentences; each has its own arithmetic.
"""
