"""Learning-rate policies and schedules."""
