"""The simulated engine on the wall clock, behind an OpenAI-compatible server."""
