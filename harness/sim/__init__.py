"""The simulated engine: a step machine with known truth, on the virtual clock."""
