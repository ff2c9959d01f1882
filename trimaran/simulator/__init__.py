"""What placement is worth: replays of what pods really used, and batch placement with a proven bound."""
