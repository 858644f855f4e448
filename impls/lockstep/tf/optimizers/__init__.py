"""The optimizers of TensorFlow 1, and NovoGrad (TensorFlow)."""
