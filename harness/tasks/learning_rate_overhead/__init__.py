"""The rate of a policy, written into two parameter groups once a step."""
