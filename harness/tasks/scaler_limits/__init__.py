"""Loss scalers at their limits: permanent overflow, permanent growth, and clipping.

Two weights have a linear loss, so the gradients are the batch itself. A situation is a
choice of batches, which is the same for every scaler on every backend.
"""
