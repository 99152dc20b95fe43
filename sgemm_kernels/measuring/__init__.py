"""Measure kernels, keep and compare the results, and plot them."""
