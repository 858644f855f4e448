"""Doing runs: find missing runs, start worker processes, record outcomes.

``run`` is the command. ``schedule`` gives its runs to ``workers``, each of which talks
to one ``worker`` process. ``check`` repeats recorded runs.
"""
