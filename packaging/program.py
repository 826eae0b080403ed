"""Writes program.ld: the functions that starting `syncline` and checking an image call, side by side.

    STRIP=none sh packaging/static.sh target/dist x86_64
    python3 packaging/program.py PROGRAM > packaging/program.ld

The kernel maps code in groups of 16 pages. A check runs 0.6 MB of the program's 5 MB; spread over all of it, that
costs 3 MB of resident memory. Needs valgrind. A name that the program no longer has is left unused by the linker, and a
function that is not listed lies where it would without the list.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """\
/* Written by program.py. `syncline` ends at a panic ([profile.program]): nothing unwinds, and the tables for it are a
   tenth of the program. What a check calls lies together. */
SECTIONS { /DISCARD/ : { *(.eh_frame) } } INSERT AFTER .text;
SECTIONS { .text.near : {"""


def called(program: str, *arguments: str) -> list[str]:
    """Symbols of the functions that one run calls, in the order of their first call."""
    with tempfile.NamedTemporaryFile() as profile:
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile.name}"]
        subprocess.run([*valgrind, program, *arguments], check=True, stdout=subprocess.DEVNULL)
        names = re.findall(r"^c?fn=\(\d+\) ([^'\n]+)", Path(profile.name).read_text(), re.MULTILINE)
    return [name for name in names if not name.startswith(("0x", "("))]


def aliases(program: str) -> dict[str, list[str]]:
    """All symbols at the address of each: the linker folds functions that are alike."""
    listed = subprocess.run(["nm", "--defined-only", program], check=True, stdout=subprocess.PIPE, text=True)
    symbols = [line.split() for line in listed.stdout.splitlines()]
    at = {}
    for address, kind, name in symbols:
        if kind in "tT":
            at.setdefault(address, []).append(name)
    return {name: names for names in at.values() for name in names}


def pattern(name: str) -> str:
    """The symbol without what changes with each build: hashes, and numbers of copies."""
    name = re.sub(r"17h[0-9a-f]{16}E.*$", "17h*", name)
    name = re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name)
    return re.sub(r"\.\d+$", "*", name)


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        # Names for a directory with an index, and one large file.
        tree, image = Path(tmp, "tree"), f"{tmp}/image"
        tree.mkdir()
        for number in range(3000):
            Path(tree, f"a file with a long name {number}").touch()
        Path(tree, "large").write_bytes(bytes(3 << 20))
        subprocess.run([program, "import", "--size", "64M", tree, image], check=True, stdout=subprocess.DEVNULL)
        names = called(program, "--version") + called(program, "check", image)
    alike = aliases(program)
    patterns = dict.fromkeys(pattern(alias) for name in names for alias in alike.get(name, [name]))
    print(HEAD)
    for text in patterns:
        # LLVM puts `unlikely` before the names of what it takes for cold.
        print(f"*(.text.*{text})")
    print("} } INSERT BEFORE .text;")


if __name__ == "__main__":
    main(sys.argv[1])
