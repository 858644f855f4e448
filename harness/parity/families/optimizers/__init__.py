"""Cases of the optimizers of TensorFlow 1 and of NovoGrad."""
