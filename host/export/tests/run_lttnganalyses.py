"""Runs a command of lttnganalyses: MODULE:FUNCTION, then its arguments.

The package was written for Python 3.4. What has moved within the standard library since is put where it looks for it.
"""

import collections
import collections.abc
import importlib
import sys

for name in ("Iterable", "Mapping", "MutableMapping", "Sequence"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

module, function = sys.argv[1].split(":")
del sys.argv[1]
getattr(importlib.import_module("lttnganalyses.cli." + module), function)()
