"""`python -m horae`, for where the `horae` script is not on the path."""

from horae.cli import main

raise SystemExit(main())
