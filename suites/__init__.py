"""What is asked: checked suite files and the plan of points they stand for."""
