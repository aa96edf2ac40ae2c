"""What is sent: sessions of turns whose prompts are made from seeds."""
