"""The rules as functions of tensors: no optimizer, no module, no class with state.

File by file the same functions as in :mod:`lockstep.reference`, with the same arguments
in the same order. The update functions write ``variable`` and ``slots`` in place, as
the functional forms of :mod:`torch.optim` do.
"""
