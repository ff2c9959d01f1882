"""``python -m trimaran``."""

from trimaran.cli.main import main

main(prog_name="trimaran")
