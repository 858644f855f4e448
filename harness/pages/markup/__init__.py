"""How texts, numbers and tables are written into templates."""
