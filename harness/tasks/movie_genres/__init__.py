"""Ratings of movies, with one head per genre; heads of missing genres are absent.

A shared trunk reads a user and a movie. It has 18 heads, and each head predicts the
ratings of one genre. Many movies have several genres. Most batches of 32 ratings
contain a drama, and one in five contains a documentary.
"""
