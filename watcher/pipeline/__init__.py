"""What happens round after round: fetch every window, judge it, publish it, keep it. Knows every stage."""
