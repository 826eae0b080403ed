#!/usr/bin/env python3
"""Makes the table of crates/core/ondisk/src/casefold.rs, that of Linux's utf8-12.1.

    scripts/casefold.py DIR/src/unicode_tables > crates/core/ondisk/src/casefold.bin

DIR is the crate regex-syntax, which has the age of each character; Python has the mappings. A
character keeps them from the version on in which it was added, so newer tables do.

The file is deflated. Numbers are LEB128. It has three lists, each with its length in front:
  runs of assigned characters: characters since the end of the last run, length
  runs of combining characters: the same, and the class
  mappings: characters since the last one, and (length, characters as differences, zigzag)
"""

import re
import sys
import unicodedata
import zlib

VERSION = (12, 1)
HANGUL = range(0xAC00, 0xAC00 + 11172)
SURROGATES = range(0xD800, 0xE000)


def ranges(text, name):
    body = re.search(r"pub const %s: .*?&\[(.*?)\];" % name, text, re.S).group(1)
    chars = re.findall(r"'(\\u\{[0-9a-f]+\}|\\.|[^'\\])'", body)
    named = {"n": 10, "t": 9, "r": 13, "0": 0}
    values = []
    for char in chars:
        if char.startswith("\\u"):
            values.append(int(char[3:-1], 16))
        elif char.startswith("\\"):
            values.append(named.get(char[1], ord(char[1])))
        else:
            values.append(ord(char))
    return list(zip(values[::2], values[1::2]))


def read(directory):
    with open(directory + "/age.rs", encoding="utf-8") as file:
        ages = file.read()
    assigned = set()
    for name in re.findall(r'\("(V\d+_\d+)"', ages):
        if tuple(map(int, name[1:].split("_"))) <= VERSION:
            for first, last in ranges(ages, name):
                assigned.update(range(first, last + 1))
    with open(directory + "/property_bool.rs", encoding="utf-8") as file:
        found = ranges(file.read(), "DEFAULT_IGNORABLE_CODE_POINT")
    ignored = {char for first, last in found for char in range(first, last + 1)}
    return assigned - set(SURROGATES), ignored


def folded(char, ignored):
    """The character folded and decomposed as far as it goes, but for Hangul."""
    if char in ignored:
        return ()
    text = chr(char).casefold()
    if text == chr(char) and char not in HANGUL:
        text = unicodedata.normalize("NFD", text)
    if text == chr(char):
        return (char,)
    return tuple(part for one in text for part in folded(ord(one), ignored))


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def runs(values):
    """Runs of consecutive characters with one value: first, length, value."""
    found = []
    for char, value in sorted(values.items()):
        if found and found[-1][0] + found[-1][1] == char and found[-1][2] == value:
            found[-1][1] += 1
        else:
            found.append([char, 1, value])
    return found


def main():
    assigned, ignored = read(sys.argv[1])
    out = bytearray()
    all_runs = runs({char: 0 for char in assigned})
    out += number(len(all_runs))
    end = 0
    for first, length, _ in all_runs:
        out += number(first - end) + number(length)
        end = first + length
    classes = {char: unicodedata.combining(chr(char)) for char in assigned}
    class_runs = runs({char: value for char, value in classes.items() if value})
    out += number(len(class_runs))
    end = 0
    for first, length, value in class_runs:
        out += number(first - end) + number(length) + number(value)
        end = first + length
    mapped = {char: folded(char, ignored) for char in sorted(assigned)}
    mapped = {char: to for char, to in mapped.items() if to != (char,)}
    out += number(len(mapped))
    last = 0
    for char, to in mapped.items():
        out += number(char - last) + number(len(to))
        before = char
        for part in to:
            step = part - before
            out += number(2 * step if step >= 0 else -2 * step - 1)
            before = part
        last = char
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    sys.stdout.buffer.write(deflater.compress(bytes(out)) + deflater.flush())


main()
