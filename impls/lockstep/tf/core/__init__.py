"""Pure tensor functions: the arithmetic of the wrappers, without variables or state.

Each file is parallel text to the file of the same name in :mod:`lockstep.reference`.
"""
