"""What the tasks share whose heads are absent from some of the steps.

They compare ways to deal with an absent head: to feed its optimizer zeros, to divide
the loss of a step by its number of tasks as well, or to leave the head alone.
"""
