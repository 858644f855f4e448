"""Three tasks on handwritten digits, each present in a step with probability p.

A shared trunk carries three heads: which digit it is, whether it is odd, and how high
the ink sits. The loss of an absent task is masked, so that its head is fed exact zeros.
Beside the heads each task has a *probe*: one weight with a linear loss, whose gradient
is -1 where the task is present and 0 where it is absent, whatever the net does. The
closed forms of ``laws`` speak of the probes.
"""
