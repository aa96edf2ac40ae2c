"""vLLM, started from its own environment, and the small models that it is tested with."""
