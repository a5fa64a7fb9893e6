"""`python -m horae`, for environments in which the `horae` script is not on the path."""

from horae.cli import main

raise SystemExit(main())
