"""Measuring: accuracy with its interval, latency of really pruned models, and the report that keeps both."""
