"""What measures: engines, clients, load, and the run of one point after another."""
