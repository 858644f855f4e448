"""A finding as a page, with its figures and predictions."""
