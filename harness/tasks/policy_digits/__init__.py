"""A linear classifier of handwritten digits, trained under each learning-rate policy.

The net is small on purpose. Runs differ only in the schedule; all have the same steps,
batches and first weights.
"""
