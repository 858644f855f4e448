"""Steps over small tensors on a GPU: their time, and how often they wait for it.

Only records of GPUs are judged, because nothing waits for a CPU.
"""
