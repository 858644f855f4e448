"""What both backends of TensorFlow compute NovoGrad with."""
