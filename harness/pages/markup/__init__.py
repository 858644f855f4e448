"""Texts, numbers, badges and tables for templates."""
