"""Shared code of the tasks that measure workers in separate processes.

A step waits for a fixed time, as for an accelerator that computes in parallel to the
CPU. So the exchange is measured, and not the number of cores of the machine.
"""
