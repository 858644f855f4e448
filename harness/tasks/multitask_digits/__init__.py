"""Three tasks on handwritten digits, each present in a step with probability p.

A shared trunk has three heads: the digit, whether it is odd, and the vertical center of
the ink. The loss of an absent task is masked, so its head is fed exact zeros. Each task
also has a *probe*: one weight with a linear loss. Its gradient is -1 if the task is
present and 0 if it is absent, independently of the net. The closed forms of ``laws``
apply to the probes.
"""
