"""Benchmarks anyone can run, with peers side by side."""
