"""Who appears together in Les Miserables: links between 77 characters, predicted.

The model is TransE: a link (head, relation, tail) is likely where the rows of head and
relation add up to nearly that of tail. Its authors hold the rows of entities to norm 1,
for else training could lower its loss by making all rows long. ``chapters.csv`` counts
the chapters in which two characters appear together: D. E. Knuth, The Stanford
GraphBase (1993), as networkx ships it (``networkx.les_miserables_graph``).
"""
