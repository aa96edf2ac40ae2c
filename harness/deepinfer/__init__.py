"""DeepInfer, an engine without a server: a worker in its own interpreter, spoken to in lines."""
