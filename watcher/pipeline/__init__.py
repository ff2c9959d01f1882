"""Pipeline of a round: fetch every window, judge it, store it, publish it. Imports the packages of all stages."""
