"""A small causal transformer on bytes of text, trained in several precisions.

Some steps have an infinite gradient. Each loss scale shows what it makes of that.
"""
