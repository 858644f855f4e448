"""Link prediction in two knowledge graphs with TransE.

A link (head, relation, tail) is likely where the rows of head and relation add up to
nearly that of tail. TransE's authors hold the rows of entities to norm 1, for else
training could lower its loss by making all rows long.
"""
