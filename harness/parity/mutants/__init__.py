"""Mutants of the reference: plausible mistakes that the recorded cases must catch."""
