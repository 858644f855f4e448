"""What the tasks share that measure workers in processes of their own.

A step waits for a fixed time, as for an accelerator that computes beside the CPU. So it
is the exchange that is measured, and not how many cores the machine has.
"""
