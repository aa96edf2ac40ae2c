"""What was measured: rows, run folders, and the numbers derived from them."""
