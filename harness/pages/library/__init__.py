"""Inserts about the library: names, optimizers, stacks and differences."""
