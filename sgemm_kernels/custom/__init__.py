"""Compile, check, sanitize and tune custom kernels."""
