"""Doing runs: which are missing, which process does them, and what it records.

``run`` is the command; ``schedule`` gives ``parts`` to ``workers``, each of which talks
to one ``worker``, a process of its own. ``revalidate`` does recorded runs again.
"""
