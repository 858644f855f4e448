"""What the library has: names, rules, stacks and differences."""
