"""Pure tensor functions: the arithmetic of the wrappers, without variables or state.

A file with a namesake in :mod:`lockstep.reference` has the same structure as that file.
The other files hold code that :mod:`lockstep.tf` and :mod:`lockstep.keras3` share.
"""
