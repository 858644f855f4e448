"""Parameters, checks and error sentences of learning-rate policies and schedules."""
