"""Steps over 20 small tensors: what a wrapper adds does not depend on their size."""
