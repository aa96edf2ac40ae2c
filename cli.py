"""The command line."""

import suites
