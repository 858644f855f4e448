"""A linear classifier of handwritten digits, trained under each learning-rate policy.

The net is small on purpose: what differs between runs is the schedule, and all of them
have the same steps, batches and first weights.
"""
