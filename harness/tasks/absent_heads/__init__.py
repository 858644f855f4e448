"""Shared code of the tasks whose heads are absent from some of the steps.

They compare three ways to handle an absent head: feed its optimizer zeros; also divide
the loss of a step by its number of present tasks; or do not update the head.
"""
