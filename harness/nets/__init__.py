"""Snapshots of behaviour that a restructuring must not change.

The behaviour that users of Lockstep see is frozen as JSON in ``snapshots/``: the
numbers of the parity report, every public signature, the sentence of each error that
the tests of ``impls`` raise, and the result of every pair of nested wrappers. Tests
compare and never write. For a deliberate change, run ``python -m harness.nets write
NAME`` and review the diff of the snapshot.
"""
