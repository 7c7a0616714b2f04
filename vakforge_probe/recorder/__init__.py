"""Crash-safe capture writing."""
