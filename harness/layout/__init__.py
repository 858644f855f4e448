"""How large the code is, what it repeats, and how far a step goes back and forth.

``nox -s layout`` counts, prints tables and writes ``results/layout.json``, from which
the contributing page is drawn. Nothing fails for a count: they show whether the code
becomes easier or harder to see.
"""
