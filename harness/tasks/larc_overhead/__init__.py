"""LARC over a model's gradients: ours, and a loop over the tensors."""
