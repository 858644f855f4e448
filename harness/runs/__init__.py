"""Doing runs: find missing runs, start worker processes, record outcomes.

``run`` is the command. ``schedule`` assigns the runs of ``parts`` to ``workers``. Each
of them talks to one ``worker`` process. ``check`` repeats recorded runs.
"""
