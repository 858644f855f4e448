"""Pure tensor functions: the arithmetic of the wrappers, without variables or state.

Each file is parallel text to the file of the same name in :mod:`lockstep.reference`.
The others hold what :mod:`lockstep.tf` and :mod:`lockstep.keras3` have in common.
"""
