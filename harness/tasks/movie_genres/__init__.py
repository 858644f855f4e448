"""Ratings of movies: one head a genre, absent where no row of the batch is of it.

A shared trunk reads a user and a movie and carries 18 heads, each of which predicts the
ratings of one genre. Many movies have several genres. Of a batch of 32 ratings, most
have a drama in it, and one in five a documentary.
"""
