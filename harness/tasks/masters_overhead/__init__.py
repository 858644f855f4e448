"""A step on float16 weights whose float32 masters an optimizer moves."""
