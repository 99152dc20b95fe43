"""Levels: small exercises with an exact goal, judged on the CPU device."""
