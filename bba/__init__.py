"""Budgeted Attention."""
