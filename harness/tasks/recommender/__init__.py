"""A recommender of films on MovieLens 100K, by the dot product of two rows.

Each user and each film has a row. A few films have many ratings and most have very few,
so the norms of frequent and of rare rows can be compared. The cost of a lookup and of a
step is also measured.
"""
