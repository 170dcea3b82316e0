"""``python -m musigma``."""

from musigma.cli.main import main

main()
