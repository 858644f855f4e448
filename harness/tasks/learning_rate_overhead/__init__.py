"""The learning rate of a policy, written into two parameter groups in each step."""
