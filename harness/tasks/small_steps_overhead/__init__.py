"""Steps on 20 small tensors, because a wrapper's cost does not depend on their size."""
