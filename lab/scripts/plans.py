#!/usr/bin/env python3
"""Runs plans of `syncline-lab sweep` and sums their rows up for the documents.

    plans.py WHAT SYNCLINE PLAN.toml ... [--keep DIR] [--json FILE]

    policies   seconds of each policy by device, pages and program; `all` has geometric means of the times that `blockclock` takes, and
               `worst` those of the program that is worst for it
    writeback  seconds of a whole run with write-back and unmount by mode, device, cache and program, of each order of write-back: `file`,
               `space`, or the policy; `all` has geometric means of the times that `space` takes, `foreground` that of `file` up to the
               last call
    zones      seconds and collections without hot zones and with those that suit the volume, the gain of time by them, and by zones of
               other numbers and sizes
    lifetime   flash pages, and the years until every block of --size-gib has its rated cycles if the trace went on for ever and all
               blocks wore evenly
    wear       by device: the same of all traces together, each --per-day times a day

With --keep the results stay in DIR, and a run that was stopped goes on. All is in virtual time: the same on every machine.
"""
import contextlib
import itertools
import json
import math
import os
import pathlib
import tempfile
import tomllib

import common

YEAR_DAYS = 365.25
YEAR_S = YEAR_DAYS * 24 * 3600


def rows_of(args, plan, directory):
    """The rows of a plan in its order, each with its `options` as a dictionary and its `run` of the document."""
    output = os.path.join(directory, pathlib.Path(plan).stem)
    resume = ["--resume"] * os.path.exists(output)
    # On an empty path no Python package is found: it would write Parquet.
    common.call(common.lab(args.syncline), "sweep", plan, "-o", output, *resume, env={"PATH": ""})
    with open(os.path.join(output, "rows.jsonl"), encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    axes = tomllib.loads(pathlib.Path(plan).read_text(encoding="utf-8"))
    axes = {name: list(map(str, values if isinstance(values, list) else [values])) for name, values in axes.items()}

    def place(row):
        known = [row["trace"] if any("*" in trace for trace in axes.get("traces", [])) else axes["traces"].index(row["trace"])
                 if row["trace"] else 0]
        return known + [axes[axis].index(row[field]) for axis, field in
                        (("sizes", "size"), ("devices", "device"), ("options", "options"), ("policies", "policy")) if axis in axes]

    for row in rows:
        if row["error"]:
            raise common.Failed(f"{plan}: {row['error']}")
    for row in sorted(rows, key=place):
        row["run"] = json.loads(row["document"])["runs"][0]
        row["options"] = dict(option.partition("=")[::2] for option in row["options"].split(",") if option)
        row["program"] = pathlib.Path(row["trace"] or "").name.split(".")[0]
        yield row


def tabled(rows, place, column, value):
    """Rows of the same place as one, with a column for each value."""
    found = {}
    for row in rows:
        found.setdefault(tuple(place(row).items()), {})[column(row)] = value(row)
    return [(dict(key), columns) for key, columns in found.items()]


def with_means(found, base, worst=False):
    """The records, and for all programs of a place the geometric means of the times that `base` takes."""
    records = [place | columns for place, columns in found]
    groups = {}
    for place, columns in found:
        group = groups.setdefault(tuple((name, value) for name, value in place.items() if name != "program"), {})
        for name in columns:
            group.setdefault(name, []).append(columns[name] / columns[base])
    for key, ratios in groups.items():
        means = {name: math.exp(sum(map(math.log, all_of)) / len(all_of)) for name, all_of in ratios.items()}
        records.append(dict(key) | {"program": "all"} | {name: round(mean, 12) for name, mean in means.items()})
        print(*(value for _, value in key), *(f"{name} {mean:.2f}" for name, mean in means.items()))
        if worst:
            records.append(dict(key) | {"program": "worst"} | {name: round(min(all_of), 12) for name, all_of in ratios.items()})
    return records


def policies(_, rows):
    return with_means(tabled(rows, lambda row: {name: row[name] for name in ("device", "pages", "program")},
                             lambda row: row["policy"], lambda row: row["device_elapsed_s"]), "blockclock", worst=True)


def writeback(_, rows):
    rows = list(rows)

    def place(row):
        options = row["options"]
        return {"mode": options["sync"], "device": row["device"], "cache": options["cache"],
                "syncs": "no" if "relaxed" in options else "yes", "program": row["program"]}

    def order(row):
        return row["policy"] if row["options"]["writeback"] == "policy" else row["options"]["writeback"]

    records = with_means(tabled(rows, place, order, lambda row: row["duration_s"]), "space")
    foreground = tabled(rows, place, order, lambda row: row["run"]["foreground"]["duration_s"])
    for record in records:
        if record["program"] == "all":
            mine = [columns for at, columns in foreground if all(record[name] == value for name, value in at.items() if name != "program")]
            record["foreground"] = round(math.exp(sum(math.log(one["file"] / one["space"]) for one in mine) / len(mine)), 12)
    return records


def zones(_, rows):
    def place(row):
        mapping = row["device"].partition("mapping=")[2].split(",")[0]
        return {"volume_gib": int(row["size"]) // 1024, "mapping": mapping, "fill_percent": int(row["options"]["fill"]),
                "sync": row["options"]["sync"]}

    def zone(row):
        if "hot_zones" in row["options"]:
            return f"gain_{row['options']['hot_zones']}x{row['options']['hot_zone_size'].rstrip('M')}"
        return row["options"].get("alloc", "none")

    records = []
    for at, found in tabled(rows, place, zone, lambda row: (row["run"]["metrics"]["duration_s"], row["run"]["metrics"]["nand_gc_runs"])):
        (none_s, none_gc), (default_s, default_gc) = found["none"], found["hot_zones"]
        others = {f"gain_{count}x{size}": "-" for count, size in itertools.product((1, 4, 16), (16, 64, 256))}
        others |= {name: f"{(none_s / seconds - 1) * 100:+.0f} %" for name, (seconds, _) in found.items() if name in others}
        records.append(at | {"none_s": none_s, "none_gc": none_gc, "default_s": default_s, "default_gc": default_gc,
                             "gain": none_s / default_s} | others)
        print(records[-1])
    return records


def mode(row):
    return {"sync": row["options"]["sync"], "log": row["options"].get("log", "jbd2")}


def programmed(args, row):
    """Bytes that a row programs, and those until every block has its rated cycles."""
    profile = common.ROOT / "profiles" / f"{row['device'].split(':')[0]}.toml"
    geometry = tomllib.loads(profile.read_text(encoding="utf-8"))["geometry"]
    return row["nand_page_programs"] * geometry["page_kib"] * 1024, geometry["rated_cycles"] * (args.size_gib << 30)


def lifetime(args, rows):
    records = []
    for row in rows:
        own, rated = programmed(args, row)
        records.append({"trace": pathlib.Path(row["trace"]).name} | mode(row) | {
            "duration_s": row["duration_s"], "pages": row["nand_page_programs"], "written_bytes": row["written_bytes"],
            "years": rated * row["duration_s"] / own / YEAR_S,
        })
        print(records[-1])
    return records


def wear(args, rows):
    records = {}
    for row in rows:
        own, rated = programmed(args, row)
        place = {"device": row["device"]} | mode(row)
        record = records.setdefault(tuple(place.values()), place | {"pages_a_day": 0, "bytes_a_day": 0, "years": 0})
        record["pages_a_day"] += row["nand_page_programs"] * args.per_day
        record["bytes_a_day"] += own * args.per_day
        record["years"] = rated / record["bytes_a_day"] / YEAR_DAYS
    for record in records.values():
        print(record)
    return list(records.values())


def main():
    kinds = {"policies": policies, "writeback": writeback, "zones": zones, "lifetime": lifetime, "wear": wear}
    parser = common.parser(__doc__)
    parser.add_argument("what", choices=kinds)
    parser.add_argument("syncline", type=os.path.abspath)
    parser.add_argument("plan", nargs="+")
    parser.add_argument("--size-gib", type=int, default=8)
    parser.add_argument("--per-day", type=int, default=100)
    parser.add_argument("--keep", help="directory of the results")
    args = parser.parse_args()
    with contextlib.ExitStack() as scratch:
        directory = args.keep or scratch.enter_context(tempfile.TemporaryDirectory())
        rows = itertools.chain.from_iterable(rows_of(args, plan, directory) for plan in args.plan)
        common.store(args.json, f"plan-{args.what}", rows=kinds[args.what](args, rows))


if __name__ == "__main__":
    common.main(main)
