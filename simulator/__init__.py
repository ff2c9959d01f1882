"""What placement is worth: batch placement with a proven bound."""
