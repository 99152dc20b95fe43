"""Compares a GPU's tensor cores with their published model, so that `auto` may use them."""
