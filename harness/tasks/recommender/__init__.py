"""A recommender of films on MovieLens 100K, by the product of two rows.

Users and films have a row each. A few films are rated often and most hardly ever, so
that norms of often-named and of rare rows can be told apart. What a lookup and a step
cost is measured as well.
"""
