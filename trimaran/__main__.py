"""``python -m trimaran``."""

from trimaran.cli import main

main(prog_name="trimaran")
