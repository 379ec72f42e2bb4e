"""Backstory: the memory of coding agents."""
