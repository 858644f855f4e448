"""A recommender on made-up choices: a few items are chosen often, most hardly ever.

Users and items have a row each; a choice is scored by the product of the two. Item k is
as popular as 1 / (k + 1) (Zipf), so that the norms of often-named and of rare rows can
be told apart, and of the lookup and the step it is measured what they cost.
"""
