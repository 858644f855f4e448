"""Link prediction in two knowledge graphs with TransE.

A link (head, relation, tail) is likely if the sum of the rows of head and relation is
close to the row of tail. TransE's authors limit the rows of entities to norm 1, because
otherwise training could lower its loss by making all rows long.
"""
