"""Steps a second of workers in processes of their own: AGN on Ray, and DDP.

A step waits for a fixed time, as for an accelerator that computes beside the CPU. So it
is the exchange that is measured, and not how many cores the machine has.
"""
