"""From records to what a page says: effects, verdicts, findings and claims."""
