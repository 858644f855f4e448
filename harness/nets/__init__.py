"""Snapshots of behaviour that must outlive a change of structure.

What users of Lockstep see is frozen as JSON in ``snapshots/``: the numbers of the
parity report, every public signature, the sentence of each error that the tests of
``impls`` make, and what comes of every pair of nested wrappers. Tests compare and never
write. A deliberate change is written with ``python -m harness.nets write NAME``, so
that the diff of the snapshot shows it.
"""
