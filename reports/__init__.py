"""What is shown: tables, charts and one self-contained page."""
