"""Loss scalers where they break: overflow without end, growth without end, a clip.

Two weights with a linear loss: its gradients are the batch itself, so a situation is a
choice of batches, the same for every scaler on every backend.
"""
