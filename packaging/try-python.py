"""Runs the examples of a document in Python, each in a directory of its own: try-python.py DOCUMENT.

An example of a package that is not installed is left out and named.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
ran = 0
for example in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
    missing = [name for name in re.findall(r"^import (\w+)", example, re.M) if not importlib.util.find_spec(name)]
    if missing:
        print(f"left out: an example that needs {', '.join(missing)}")
        continue
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", example], cwd=directory, check=True)
    ran += 1
if ran < 3:
    sys.exit(f"only {ran} examples were run")
print(f"{ran} examples of {sys.argv[1]} ran")
