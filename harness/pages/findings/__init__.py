"""The page of each finding, with its figures and predictions."""
